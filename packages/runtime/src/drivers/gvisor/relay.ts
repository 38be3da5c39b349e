import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { connect, type Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import { setImmediate as afterReads } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';
import { atSocket } from '../../guest/socket-path.ts';
import { mountTrouble } from '../../machine/mount-trouble.ts';
import { killGroup } from '../../programs/run-program.ts';
import { type Bounds, unlessGivenUp } from '../../programs/unless-given-up.ts';
import type { PlacedMount } from './mounted-at.ts';

export interface RelayMount extends PlacedMount {
  /** Where it shows the directory, for the bundle. */
  readonly place: string;
}

export interface RelayOptions {
  readonly program: string;
  readonly socket: string;
  readonly holdSocket: string;
  /** Where the hook of the bundle knocks. */
  readonly gateSocket: string;
  readonly netns: string;
  /** Of the overlay that is the root, as options of its mount, and the directory that their paths begin at. */
  readonly layers: string;
  readonly imageDir: string;
  readonly rootDir: string;
  /** Where it shows the sandbox's /tmp, for the bundle. */
  readonly tmpDir: string;
  readonly mounts: readonly RelayMount[];
  readonly cgroupFiles: readonly string[];
  /** The only ones that it runs on, and so those that it has; undefined for all. */
  readonly processors: string | undefined;
  /** As much as programs are told that there is. */
  readonly memoryBytes: number;
  /** Starts the sandbox, by way of the gate. */
  readonly command: readonly string[];
}

const shownStderrChars = 2000;

/** A relay that starts a sandbox; it lives as long as the sandbox does, whatever becomes of the daemon. */
export class Relay {
  readonly #program: string;
  readonly #mounts: readonly RelayMount[];
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  /** The first that it said; a sandbox that is given back its memory may write there without end. */
  #complaint = '';
  #pid = 0;
  readonly #over: Promise<string>;

  private constructor(options: RelayOptions) {
    this.#program = options.program;
    this.#mounts = options.mounts;
    const args = [
      ...['--socket', options.socket, '--hold-socket', options.holdSocket],
      ...['--gate-socket', options.gateSocket],
      ...['--netns', options.netns, '--layers', options.layers, '--root', options.rootDir],
      ...['--image', options.imageDir, '--tmp', options.tmpDir],
      ...options.mounts.flatMap(mountArgs),
      ...(options.processors === undefined ? [] : ['--processors', options.processors]),
      ...['--memory', String(options.memoryBytes)],
      ...options.cgroupFiles.flatMap((file) => ['--cgroup', file]),
      ...['--', ...options.command],
    ];
    this.#child = spawn(options.program, args, {
      detached: true,
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { PATH: process.env.PATH },
    });
    this.#child.stderr.on('data', (chunk: Buffer) => {
      if (this.#complaint.length < shownStderrChars) this.#complaint += chunk.toString('utf8');
    });
    // A relay that has ended does not read; that it has is heard below.
    this.#child.stdin.on('error', () => {});
    this.#over = new Promise((resolve, reject) => {
      this.#child.once('error', (cause) =>
        reject(new CoppiceError('internal', `cannot run ${this.#program}`, { cause })),
      );
      this.#child.once('close', (code) => resolve(`its relay ended with code ${code}`));
    });
    this.#over.catch(() => {});
  }

  /** The sandbox is made when this returns. Nothing inside runs before `go`; `drop` one that shall not. */
  static async make(options: RelayOptions, bounds: Bounds): Promise<Relay> {
    const relay = new Relay(options);
    try {
      relay.#pid = Number(await relay.#hear(/^made (\d+)$/, bounds));
      return relay;
    } catch (error) {
      relay.drop();
      // It may not have got as far as the cgroup by which all else of it is found.
      await killGroup(relay.#child);
      throw error;
    }
  }

  /** Of the kernel of the sandbox. */
  get pid(): number {
    return this.#pid;
  }

  /** Of the relay itself. */
  get ownPid(): number {
    return this.#child.pid ?? 0;
  }

  /** Lets it run. */
  async go(bounds: Bounds): Promise<void> {
    this.#child.stdin.write('g');
    try {
      await this.#hear(/^(ready)$/, bounds);
    } finally {
      this.drop();
    }
  }

  /** No more is asked of it: one that was not let run waits for the end of its sandbox. */
  drop(): void {
    for (const stream of [this.#child.stdin, this.#child.stdout, this.#child.stderr]) stream.destroy();
    this.#child.unref();
  }

  /** What the pattern picks out of its next line. */
  async #hear(expected: RegExp, bounds: Bounds): Promise<string> {
    const said = new Promise<string>((resolve) => {
      this.#child.stdout.once('data', (chunk: Buffer) => resolve(chunk.toString('utf8').trim()));
    });
    const heard = await unlessGivenUp(
      'the start of the sandbox by runsc',
      Promise.race([said, this.#over]),
      bounds,
    );
    const picked = expected.exec(heard)?.[1];
    if (picked !== undefined) return picked;
    // What was written to stderr before has arrived, and is read in this turn of the event loop.
    await afterReads();
    const reason = this.#complaint.trim().slice(0, shownStderrChars);
    // Troubles count all places; those that are the sandbox's own come last.
    const trouble = mountTrouble(
      reason,
      this.#mounts.flatMap(({ host }) => host ?? []),
    );
    if (trouble !== undefined) throw trouble;
    throw new CoppiceError('internal', `gVisor did not start the sandbox (${heard}): ${reason}`);
  }
}

const mountArgs = ({ guestPath, place, host }: RelayMount): string[] => [
  ...['--mount-at', guestPath, '--mount-place', place],
  ...(host === undefined ? [] : ['--mount', host.hostPath, '--mount-mode', host.readOnly ? 'ro' : 'rw']),
  ...(host?.identity == null ? [] : ['--mount-identity', host.identity]),
];

/** As long as it is held, the sandbox is given nothing new, and it has taken all that it was given. */
export interface RelayHold {
  release(): void;
}

export const holdRelay = (holdSocket: string, bounds: Bounds): Promise<RelayHold> =>
  atSocket(holdSocket, (path) => hold(path, bounds));

const hold = async (holdSocket: string, { signal, deadlineMs = 30_000 }: Bounds): Promise<RelayHold> => {
  const socket: Socket = connect(holdSocket);
  const held = new Promise<void>((resolve, reject) => {
    socket.once('data', () => resolve());
    socket.once('error', (cause) =>
      reject(new CoppiceError('unavailable', 'the relay of the sandbox cannot be reached', { cause })),
    );
  });
  try {
    await unlessGivenUp('the wait for the sandbox to take its input', held, { signal, deadlineMs });
  } catch (error) {
    socket.destroy();
    throw error;
  }
  return { release: () => socket.destroy() };
};
