import { randomBytes } from 'node:crypto';
import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import type { GatewayEvent } from '@coppice/protocol';
import type { LedgerDatabase } from '../ledger/open-ledger-file.ts';
import { RefusalLimit } from './refusals.ts';

interface Posted {
  readonly seq: number;
  readonly at_ms: number;
  readonly event: GatewayEvent;
}

export interface Position {
  readonly epoch: string;
  readonly after: number;
}

export interface Page {
  /** Another text for another outbox: positions in one mean nothing in the other. */
  readonly epoch: string;
  readonly events: readonly Posted[];
}

/** Those that were fetched stay this long, for a daemon that went back to a backup of its database. */
const fetchedKept = 10_000;
const keptInAll = 1_000_000;
const pruneEvery = 1_000;

interface Row {
  readonly seq: number;
  readonly at_ms: number;
  readonly body: string;
}

/**
 * What the daemon has yet to hear, in the file of the ledger: an event is written in the transaction of what it tells of. The
 * daemon reads from where it was, so that nothing is lost or told twice whichever of the two dies.
 */
export class Outbox {
  readonly epoch: string;
  readonly #database: LedgerDatabase;
  readonly #now: () => number;
  readonly #posted = new EventEmitter<{ posted: [] }>().setMaxListeners(0);
  readonly #refusals: RefusalLimit;
  readonly #insert;
  readonly #page;

  constructor(database: LedgerDatabase, now: () => number = Date.now) {
    this.#database = database;
    this.#now = now;
    this.#refusals = new RefusalLimit(now);
    this.#insert = database.prepare('INSERT INTO outbox (at_ms, body) VALUES (?, ?)');
    this.#page = database.prepare<[number, number], Row>(
      'SELECT seq, at_ms, body FROM outbox WHERE seq > ? ORDER BY seq LIMIT ?',
    );
    database
      .prepare('INSERT OR IGNORE INTO outbox_epoch (id, epoch) VALUES (1, ?)')
      .run(randomBytes(8).toString('hex'));
    const row = database.prepare<[], { epoch: string }>('SELECT epoch FROM outbox_epoch').get();
    this.epoch = row!.epoch;
  }

  post(event: GatewayEvent): void {
    if (!this.#refusals.admits(event)) return;
    const { lastInsertRowid } = this.#insert.run(this.#now(), JSON.stringify(event));
    const seq = Number(lastInsertRowid);
    if (seq % pruneEvery === 0) this.#deleteUpTo(seq - keptInAll);
    // After the transaction that this may be part of: a transaction ends before the next turn.
    setImmediate(() => this.#posted.emit('posted'));
  }

  /** Those after that one; asking for them says that the ones before have arrived. A position in another outbox is none here. */
  page(position: Position, limit: number): Page {
    const after = position.epoch === this.epoch ? position.after : 0;
    const events = this.#page.all(after, limit).map(({ seq, at_ms, body }) => ({
      seq,
      at_ms,
      event: JSON.parse(body) as GatewayEvent,
    }));
    if (after % pruneEvery === 0 || events.length === limit) this.#deleteUpTo(after - fetchedKept);
    return { epoch: this.epoch, events };
  }

  /** As `page`; where there is none yet, the first that comes while somebody waits. */
  async next(position: Position, limit: number, waitMs: number, waiting: Socket): Promise<Page> {
    const now = this.page(position, limit);
    if (now.events.length > 0 || waitMs === 0) return now;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => done(), waitMs);
      const done = (): void => {
        clearTimeout(timer);
        this.#posted.off('posted', done);
        waiting.off('close', done);
        resolve();
      };
      this.#posted.once('posted', done);
      waiting.once('close', done);
    });
    return this.page(position, limit);
  }

  #deleteUpTo(seq: number): void {
    if (seq > 0) this.#database.prepare('DELETE FROM outbox WHERE seq <= ?').run(seq);
  }
}
