import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { CoppiceError } from '@coppice/protocol';
import { type Git, tailOf } from './git.ts';
import { readPushHead } from './push-head.ts';

export const gitServices = ['git-upload-pack', 'git-receive-pack'] as const;
export type GitService = (typeof gitServices)[number];

export interface TransportRequest {
  readonly directory: string;
  readonly service: GitService;
  /** The version of git's protocol that the client asks for, as in its header. */
  readonly protocol: string | undefined;
  /** The one branch that may be pushed; all where nobody says. */
  readonly onlyBranch?: string | undefined;
  /** Who asks: one of them gets half of all places at most. */
  readonly caller: string;
  readonly signal: AbortSignal;
}

export interface TransportLimits {
  /** Of one request, as it comes and unpacked. */
  readonly maxRequestBytes: number;
  readonly mostAtOnce: number;
  readonly timeoutMs: number;
}

/** Fetches tell what they have and want; the packs of pushes are counted by git too. */
const mostFetchBytes = 16 * 1024 * 1024;

/**
 * Git's smart protocol over HTTP: one process of git for each request, which sees one repository and nothing else. There is no
 * path in it that a client could steer, no dumb protocol, and no hook.
 */
export class GitTransport {
  readonly #git: Git;
  readonly #limits: TransportLimits;
  readonly #running = new Map<string, number>();

  constructor(git: Git, limits: TransportLimits) {
    this.#git = git;
    this.#limits = limits;
  }

  /** What a client asks first: which branches there are. */
  async *advertise(request: TransportRequest): AsyncGenerator<Uint8Array> {
    const line = `# service=${request.service}\n`;
    yield Buffer.from(`${(line.length + 4).toString(16).padStart(4, '0')}${line}0000`);
    yield* this.#serve(request, ['--http-backend-info-refs'], noBytes());
  }

  async *answer(
    request: TransportRequest,
    body: AsyncIterable<Uint8Array>,
    encoding: string | undefined,
  ): AsyncGenerator<Uint8Array> {
    const limit = request.service === 'git-upload-pack' ? mostFetchBytes : this.#limits.maxRequestBytes;
    const plain = counted(decoded(counted(body, limit), encoding), limit);
    if (request.service === 'git-upload-pack') {
      yield* this.#serve(request, [], plain);
      return;
    }
    const { commands, bytes } = await readPushHead(plain);
    for (const { ref } of commands)
      if (request.onlyBranch !== undefined && ref !== `refs/heads/${request.onlyBranch}`)
        throw new CoppiceError('forbidden', `this token pushes ${request.onlyBranch} and not ${ref}`, {
          hint: `Push to ${request.onlyBranch}.`,
        });
    yield* this.#serve(request, [], bytes);
  }

  async *#serve(
    { directory, service, protocol, onlyBranch, caller, signal }: TransportRequest,
    args: readonly string[],
    input: AsyncIterable<Uint8Array>,
  ): AsyncGenerator<Uint8Array> {
    this.#take(caller);
    const child = this.#git.spawn(
      directory,
      [service.slice('git-'.length), '--stateless-rpc', ...args, '.'],
      {
        ...(protocol !== undefined && /^version=[012]$/.test(protocol)
          ? { env: { GIT_PROTOCOL: protocol } }
          : {}),
        config:
          onlyBranch === undefined || service !== 'git-receive-pack'
            ? []
            : [
                ['receive.hideRefs', 'refs'],
                ['receive.hideRefs', `!refs/heads/${onlyBranch}`],
              ],
      },
    );
    const end = () => child.kill('SIGKILL');
    const timer = setTimeout(end, this.#limits.timeoutMs);
    signal.addEventListener('abort', end, { once: true });
    if (signal.aborted) end();
    const closed = once(child, 'close') as Promise<[number | null]>;
    child.stdin.on('error', () => {});
    const complaint = tailOf(child.stderr);
    let refused: unknown;
    const feeding = pour(input, child.stdin).catch((error: unknown) => {
      refused = error;
      end();
    });
    try {
      for await (const chunk of child.stdout as Readable) yield chunk as Uint8Array;
      await feeding;
      if (refused !== undefined) throw refused;
      const [code] = await closed;
      if (code !== 0 && !signal.aborted)
        throw new CoppiceError('unavailable', `git ${service} ended with ${code}: ${lastLine(complaint())}`);
    } finally {
      end();
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      await closed.catch(() => undefined);
      this.#running.set(caller, this.#running.get(caller)! - 1);
      if (this.#running.get(caller) === 0) this.#running.delete(caller);
    }
  }

  #take(caller: string): void {
    const { mostAtOnce } = this.#limits;
    const own = this.#running.get(caller) ?? 0;
    const all = [...this.#running.values()].reduce((sum, count) => sum + count, 0);
    if (all >= mostAtOnce || own >= mostAtOnce / 2)
      throw new CoppiceError(
        'rate_limited',
        all >= mostAtOnce
          ? `${all} fetches and pushes are under way`
          : `${own} fetches and pushes with this token are under way`,
        { details: { retry_after_s: 1 } },
      );
    this.#running.set(caller, own + 1);
  }
}

const lastLine = (text: string): string =>
  (text.trim().split('\n').at(-1) ?? '').replace(/[^\x20-\x7e]/g, '?').slice(0, 300);

async function* noBytes(): AsyncGenerator<Uint8Array> {}

async function* counted(source: AsyncIterable<Uint8Array>, limit: number): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  for await (const chunk of source) {
    bytes += chunk.length;
    if (bytes > limit)
      throw new CoppiceError('too_large', `git sends more than ${limit} bytes in one request`, {
        hint: 'Push in smaller parts, or raise `limits.forge_push_mb` in config.json.',
      });
    yield chunk;
  }
}

async function* decoded(
  source: AsyncIterable<Uint8Array>,
  encoding: string | undefined,
): AsyncGenerator<Uint8Array> {
  if (encoding === undefined || encoding === 'identity') {
    yield* source;
    return;
  }
  if (encoding !== 'gzip' && encoding !== 'x-gzip')
    throw new CoppiceError('unsupported', `a body packed as ${encoding.slice(0, 40)} is not read here`);
  const unpack = createGunzip();
  const feeding = pour(source, unpack).catch((error: unknown) => unpack.destroy(error as Error));
  try {
    for await (const chunk of unpack) yield chunk as Uint8Array;
    await feeding;
  } catch (error) {
    if (error instanceof CoppiceError) throw error;
    throw new CoppiceError('invalid_argument', 'the body is not packed as its head says', { cause: error });
  } finally {
    unpack.destroy();
  }
}

async function pour(
  source: AsyncIterable<Uint8Array>,
  into: NodeJS.WritableStream & { destroyed?: boolean },
): Promise<void> {
  for await (const chunk of source) {
    if (into.destroyed) return;
    if (!into.write(chunk)) {
      const leave = new AbortController();
      const wait = { signal: leave.signal };
      await Promise.race([once(into, 'drain', wait), once(into, 'close', wait)]).catch(() => undefined);
      leave.abort();
    }
  }
  into.end();
}
