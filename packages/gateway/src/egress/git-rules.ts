import type { IncomingMessage } from 'node:http';
import type { SecretUse } from '@coppice/protocol';

type Rules = NonNullable<SecretUse['git']>;

/** What one request of git wants. */
export type GitAsk =
  | { readonly kind: 'fetch' | 'push'; readonly repository: string; readonly isPush: boolean }
  | undefined;

/** All that a push says before its pack: one line for each branch. */
const longestCommands = 1024 * 1024;

/** The calls of git over HTTP; anything else of such a host is not git. */
export function gitAsk(method: string, target: string): GitAsk {
  const [path = '', query = ''] = target.split('?', 2);
  const advertised = /^(\/.+)\/info\/refs$/.exec(path);
  if (method === 'GET' && advertised !== null) {
    const service = /^service=git-(upload|receive)-pack$/.exec(query)?.[1];
    if (service === undefined) return undefined;
    return {
      kind: service === 'upload' ? 'fetch' : 'push',
      repository: plain(advertised[1]!),
      isPush: false,
    };
  }
  const called = /^(\/.+)\/git-(upload|receive)-pack$/.exec(path);
  if (method !== 'POST' || called === null || query !== '') return undefined;
  const isPush = called[2] === 'receive';
  return { kind: isPush ? 'push' : 'fetch', repository: plain(called[1]!), isPush };
}

const plain = (repository: string): string => repository.slice(1).replace(/\.git$/, '');

const matches = (pattern: string, text: string): boolean =>
  pattern.endsWith('*') ? text.startsWith(pattern.slice(0, -1)) : pattern === text;

/** Branches that may be pushed to; undefined where not even a fetch is allowed. */
export const branchesOf = (rules: Rules, repository: string): readonly string[] | undefined => {
  const found = rules.filter((rule) => matches(plain(`/${rule.repository}`), repository));
  return found.length === 0 ? undefined : found.flatMap((rule) => rule.push);
};

export interface PushCommands {
  readonly refs: readonly string[];
  /** What was read of the body. */
  readonly head: Buffer;
  readonly hasSideBand: boolean;
}

/** Reads the lines of a push up to its pack. Throws in words for people where they are none that could be judged. */
export async function readPush(request: IncomingMessage): Promise<PushCommands> {
  if ((request.headers['content-encoding'] ?? 'identity') !== 'identity')
    throw new Error('a push that is compressed as a whole cannot be judged');
  let head = Buffer.alloc(0);
  const refs: string[] = [];
  let hasSideBand = false;
  let at = 0;
  const more = async (): Promise<void> => {
    const chunk = await nextChunk(request);
    if (chunk === undefined) throw new Error('the push ends in the middle of its commands');
    head = Buffer.concat([head, chunk]);
    if (head.length > longestCommands) throw new Error('the push has too many commands');
  };
  for (;;) {
    while (head.length < at + 4) await more();
    const text = head.toString('latin1', at, at + 4);
    if (!/^[0-9a-f]{4}$/i.test(text)) throw new Error('the push has a line without a length');
    const size = Number.parseInt(text, 16);
    if (size === 0) return { refs, head, hasSideBand };
    if (size < 5) throw new Error('the push has a line of no length');
    while (head.length < at + size) await more();
    const line = head.toString('utf8', at + 4, at + size);
    at += size;
    const [command = '', capabilities = ''] = line.split('\0', 2);
    if (capabilities.split(' ').includes('side-band-64k')) hasSideBand = true;
    if (/^shallow [0-9a-f]{40,64}\n?$/.test(command)) continue;
    const ref = /^[0-9a-f]{40,64} [0-9a-f]{40,64} (\S+?)\n?$/.exec(command)?.[1];
    if (ref === undefined) throw new Error('the push has a command that is none of a branch');
    refs.push(ref);
  }
}

function nextChunk(request: IncomingMessage): Promise<Buffer | undefined> {
  return new Promise((resolve, reject) => {
    const done = (): void => {
      const chunk = request.read() as Buffer | null;
      if (chunk === null && !request.readableEnded && !request.destroyed) return;
      for (const event of ['readable', 'end', 'close'] as const) request.off(event, done);
      request.off('error', reject);
      resolve(chunk ?? undefined);
    };
    for (const event of ['readable', 'end', 'close'] as const) request.on(event, done);
    request.once('error', reject);
    done();
  });
}

/** Which of them may not be pushed to. */
export const refused = (refs: readonly string[], branches: readonly string[]): string[] =>
  refs.filter(
    (ref) => !ref.startsWith('refs/heads/') || !branches.some((one) => matches(one, ref.slice(11))),
  );

const line = (content: Buffer | string): Buffer => {
  const bytes = Buffer.from(content as string);
  return Buffer.concat([Buffer.from((bytes.length + 4).toString(16).padStart(4, '0')), bytes]);
};
const end = Buffer.from('0000');

/** The answer on which git says for each branch why it was not taken, and the sentence. */
export function refusalOfPush({ refs, hasSideBand }: PushCommands, why: string, sentence: string): Buffer {
  const report = Buffer.concat([line('unpack ok\n'), ...refs.map((ref) => line(`ng ${ref} ${why}\n`)), end]);
  if (!hasSideBand) return report;
  const band = (number: number, content: Buffer): Buffer =>
    line(Buffer.concat([Buffer.from([number]), content]));
  return Buffer.concat([band(2, Buffer.from(`${sentence}\n`)), band(1, report), end]);
}
