import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable, Writable } from 'node:stream';
import { CoppiceError } from '@coppice/protocol';

export interface GitOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly config?: readonly (readonly [string, string])[];
  readonly stdin?: string | AsyncIterable<Uint8Array>;
  readonly timeoutMs?: number;
  readonly maxOutputBytes?: number;
  /** Files and directories that it may read besides, and where it sees them. */
  readonly show?: readonly { readonly from: string; readonly at: string }[];
  /** Reach the network; nobody but a fetch from or a push to a forge elsewhere needs it. */
  readonly network?: boolean;
  readonly signal?: AbortSignal | undefined;
}

export interface GitResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

export type GitProcess = ChildProcessByStdio<Writable, Readable, Readable>;

const defaultTimeoutMs = 120_000;
const defaultOutputBytes = 8 * 1024 * 1024;
const stderrBytes = 16_384;
/** What one process may take, in KiB. A few megabytes of a pack can name an object of any size, which git holds in memory. */
const memoryKib = 2 * 1024 * 1024;
const bounded = `ulimit -v ${memoryKib} && exec /usr/bin/git "$@"`;

/** What holds for every repository, whatever its own file of settings says. Limits keep a hostile pack from taking the machine. */
const settings = (maxPackBytes: number): readonly (readonly [string, string])[] => [
  ['safe.directory', '/repo'],
  ['core.hooksPath', '/dev/null'],
  ['core.fsmonitor', 'false'],
  ['core.bigFileThreshold', '8m'],
  ['core.packedGitLimit', '256m'],
  ['core.packedGitWindowSize', '16m'],
  ['core.deltaBaseCacheLimit', '32m'],
  ['core.logAllRefUpdates', 'false'],
  ['pack.threads', '1'],
  ['pack.windowMemory', '64m'],
  ['pack.deltaCacheSize', '32m'],
  ['gc.auto', '0'],
  ['maintenance.auto', 'false'],
  ['receive.autogc', 'false'],
  ['receive.maxInputSize', String(maxPackBytes)],
  ['receive.denyNonFastForwards', 'true'],
  ['receive.denyDeletes', 'true'],
  ['receive.advertisePushOptions', 'false'],
  ['transfer.fsckObjects', 'true'],
  // What the daemon keeps for itself is neither shown nor taken.
  ['transfer.hideRefs', 'refs/coppice'],
  ['protocol.allow', 'never'],
];

/** Names of the things in a home, of libraries and of nothing else of the machine. */
const sight = [
  ...['--unshare-all', '--die-with-parent', '--new-session', '--cap-drop', 'ALL'],
  ...['--ro-bind', '/usr', '/usr', '--ro-bind-try', '/bin', '/bin', '--ro-bind-try', '/lib', '/lib'],
  ...['--ro-bind-try', '/lib64', '/lib64', '--dev', '/dev', '--tmpfs', '/tmp', '--clearenv'],
];

/** What a program needs to find a host and to trust it. */
const networkSight = [
  '--share-net',
  ...['/etc/ssl', '/etc/resolv.conf', '/etc/hosts', '/etc/nsswitch.conf', '/etc/ca-certificates'].flatMap(
    (path) => ['--ro-bind-try', path, path],
  ),
];

/**
 * Runs git on bare repositories whose objects strangers sent. Each process sees its repository, the system's programs and
 * libraries, and nothing else: no home, no network, no settings of the machine, no environment, no hooks.
 */
export class Git {
  readonly #maxPackBytes: number;

  constructor({ maxPackBytes }: { readonly maxPackBytes: number }) {
    this.#maxPackBytes = maxPackBytes;
  }

  /** Standard output without the last line end; a failure is an error. */
  async run(directory: string, args: readonly string[], options: GitOptions = {}): Promise<string> {
    const result = await this.try(directory, args, options);
    if (result.exitCode !== 0) throw gitFailure(args, result);
    return result.stdout.replace(/\n$/, '');
  }

  async try(directory: string, args: readonly string[], options: GitOptions = {}): Promise<GitResult> {
    const child = this.spawn(directory, args, options);
    const { timeoutMs = defaultTimeoutMs, maxOutputBytes = defaultOutputBytes, stdin = '', signal } = options;
    let why: CoppiceError | undefined;
    const end = (reason: CoppiceError) => {
      why ??= reason;
      child.kill('SIGKILL');
    };
    const timer = setTimeout(
      () => end(new CoppiceError('timeout', `git ${args[0]} took longer than ${timeoutMs / 1000} s`)),
      timeoutMs,
    );
    const onAbort = () => end(new CoppiceError('cancelled', `git ${args[0]} was given up`));
    signal?.addEventListener('abort', onAbort, { once: true });
    if (signal?.aborted) onAbort();
    const closed = once(child, 'close');
    try {
      // A program that ends before it has read all of its input says why by itself.
      child.stdin.on('error', () => {});
      const feeding = feed(child.stdin, stdin).catch((error: unknown) =>
        end(
          error instanceof CoppiceError
            ? error
            : new CoppiceError('unavailable', `what git ${args[0]} reads broke off`, { cause: error }),
        ),
      );
      const chunks: Buffer[] = [];
      let bytes = 0;
      child.stdout.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes > maxOutputBytes)
          end(new CoppiceError('too_large', `git ${args[0]} says more than ${maxOutputBytes} bytes`));
        else chunks.push(chunk);
      });
      const stderr = tailOf(child.stderr);
      const [code] = (await closed) as [number | null];
      await feeding;
      if (why !== undefined) throw why;
      return { exitCode: code ?? 137, stdout: Buffer.concat(chunks).toString('utf8'), stderr: stderr() };
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
    }
  }

  /** What it says as it comes, however much that is. */
  async *stream(
    directory: string,
    args: readonly string[],
    options: GitOptions = {},
  ): AsyncGenerator<Uint8Array> {
    const child = this.spawn(directory, args, options);
    const end = () => child.kill('SIGKILL');
    const timer = setTimeout(end, options.timeoutMs ?? defaultTimeoutMs);
    options.signal?.addEventListener('abort', end, { once: true });
    const closed = once(child, 'close') as Promise<[number | null]>;
    const stderr = tailOf(child.stderr);
    child.stdin.on('error', () => {});
    child.stdin.end();
    try {
      for await (const chunk of child.stdout) yield chunk as Uint8Array;
      const [code] = await closed;
      if (code !== 0) throw gitFailure(args, { exitCode: code ?? 137, stdout: '', stderr: stderr() });
    } finally {
      end();
      clearTimeout(timer);
      options.signal?.removeEventListener('abort', end);
      await closed.catch(() => undefined);
    }
  }

  /** The process itself, for whoever talks to it. */
  spawn(directory: string, args: readonly string[], options: GitOptions = {}): GitProcess {
    const config = [...settings(this.#maxPackBytes), ...(options.config ?? [])];
    const env: Record<string, string> = {
      GIT_DIR: '/repo',
      PATH: '/usr/bin:/bin',
      HOME: '/nonexistent',
      LC_ALL: 'C.UTF-8',
      GIT_CONFIG_NOSYSTEM: '1',
      GIT_CONFIG_GLOBAL: '/dev/null',
      GIT_ATTR_NOSYSTEM: '1',
      GIT_TERMINAL_PROMPT: '0',
      // Each further arena would count as 128 MiB of memory.
      MALLOC_ARENA_MAX: '1',
      GIT_CONFIG_COUNT: String(config.length),
      ...Object.fromEntries(
        config.flatMap(([key, value], index) => [
          [`GIT_CONFIG_KEY_${index}`, key],
          [`GIT_CONFIG_VALUE_${index}`, value],
        ]),
      ),
      ...options.env,
    };
    const shown = (options.show ?? []).flatMap(({ from, at }) => ['--ro-bind', from, at]);
    const words = [
      ...sight,
      ...(options.network ? networkSight : []),
      ...['--bind', directory, '/repo', '--chdir', '/repo', ...shown],
      // By a descriptor: arguments can be read by everybody on the machine, and one of these may hold a login.
      ...['--args', '3', '--', '/bin/sh', '-c', bounded, 'git', ...args],
    ];
    const child = spawn('bwrap', words, {
      stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
      env: { PATH: '/usr/bin:/bin' },
    });
    const more = child.stdio[3] as Writable;
    more.on('error', () => {});
    more.end(
      Object.entries(env)
        .flatMap(([key, value]) => ['--setenv', key, value])
        .map((word) => `${word}\0`)
        .join(''),
    );
    return child as unknown as GitProcess;
  }
}

/** The last of what a program complains about. */
export function tailOf(stream: Readable): () => string {
  let tail = Buffer.alloc(0);
  stream.on('data', (chunk: Buffer) => {
    tail = Buffer.concat([tail, chunk]).subarray(-stderrBytes);
  });
  return () => tail.toString('utf8');
}

const printable = (text: string): string => text.replace(/[^\x20-\x7e\n]/g, '?').trim();

export const gitFailure = (args: readonly string[], { exitCode, stderr }: GitResult): CoppiceError =>
  new CoppiceError(
    'conflict',
    `git ${args[0]} failed (exit code ${exitCode}): ${printable(stderr).slice(-2000)}`,
    {
      hint: 'Read what git says, settle it, then call again.',
    },
  );

async function feed(stdin: Writable, input: string | AsyncIterable<Uint8Array>): Promise<void> {
  if (typeof input === 'string') {
    stdin.end(input);
    return;
  }
  for await (const chunk of input) {
    if (stdin.destroyed) break;
    if (!stdin.write(chunk))
      await Promise.race([once(stdin, 'drain'), once(stdin, 'close')]).catch(() => undefined);
  }
  stdin.end();
}
