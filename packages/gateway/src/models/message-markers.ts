import type { LedgerDatabase } from '../ledger/open-ledger-file.ts';

const mark = 'coppice-message id=';
/** The quotes may be escaped, as often as the text was put into other text. */
const marked = /^\\{0,15}["']([A-Za-z0-9_.:-]{1,64})\\{0,15}["']/;
const before = /(?:<|\\u003[cC])$/;
const longest = 128;

/** In one request; the newest count, as they are what an agent has just been sent. */
const mostInRequest = 500;

/** Ids of the messages that a request carries, in the order in which they stand there, each once. */
export function messagesIn(body: Buffer): string[] {
  const ids = new Set<string>();
  for (let at = body.indexOf(mark); at !== -1; at = body.indexOf(mark, at + mark.length)) {
    if (!before.test(body.toString('latin1', Math.max(0, at - 6), at))) continue;
    const after = at + mark.length;
    const id = marked.exec(body.toString('latin1', after, after + longest))?.[1];
    if (id !== undefined) ids.add(id);
  }
  return [...ids].slice(-mostInRequest);
}

/** An agent may write as many markers as it likes; of so many of each sandbox it is known that they were seen. */
const mostOfSandbox = 20_000;

/** Which messages a model was shown, by sandbox. Outlives this process. */
export class Sightings {
  readonly #database: LedgerDatabase;
  readonly #now: () => number;

  constructor(database: LedgerDatabase, now: () => number = Date.now) {
    this.#database = database;
    this.#now = now;
  }

  /** Writes them down and returns those that were not there. */
  add(sandbox: string, messages: readonly string[]): string[] {
    if (messages.length === 0) return [];
    const insert = this.#database.prepare('INSERT OR IGNORE INTO sightings VALUES (?, ?, ?)');
    const known = this.#database.prepare<[string], { count: number }>(
      'SELECT count(*) AS count FROM sightings WHERE sandbox = ?',
    );
    const fresh = messages.filter((message) => insert.run(sandbox, message, this.#now()).changes > 0);
    if (fresh.length > 0 && known.get(sandbox)!.count > mostOfSandbox)
      this.#database
        .prepare(
          `DELETE FROM sightings WHERE sandbox = ? AND message IN
             (SELECT message FROM sightings WHERE sandbox = ? ORDER BY at_ms LIMIT ?)`,
        )
        .run(sandbox, sandbox, mostOfSandbox / 2);
    return fresh;
  }
}
