import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import type { CgroupSetting } from '../../cgroups/cgroup-hierarchy.ts';
import type { HostMount, ImageRoot } from '../../driver.ts';
import type { ProcessIdentity } from '../../machine/process-identity.ts';
import { encodeLaunchMessage, type LaunchFields, LaunchMessageReader } from './launch-message.ts';

export interface LauncherOptions {
  readonly program: string;
  /** Asked when the first of them is needed. */
  readonly agent: () => string;
  readonly bubblewrap: string;
  readonly v1Parents: readonly string[];
  /** How many processes wait ready inside cgroups; of use with version 1 only. */
  readonly standbys: number;
  /** Told of each server that is started. */
  readonly onStarted?: (pid: number) => void;
}

export interface LaunchRequest {
  readonly id: string;
  readonly runDir: string;
  readonly image: ImageRoot;
  readonly diskDir: string;
  readonly mounts: readonly HostMount[];
  readonly hostname: string;
  readonly firstId: number;
  /** What bounds the filesystems in memory. */
  readonly memoryBytes: number;
  /** The only ones that it runs on; undefined for all. */
  readonly processors: string | undefined;
  /** What it sees of its own cgroups, as HomeCgroups names them. */
  readonly shownCgroups: readonly string[];
  readonly v2Directory: string | null;
  readonly settings: readonly CgroupSetting[];
}

export interface RestoreRequest extends LaunchRequest {
  readonly criu: string;
  /** The agent that the memory is of. */
  readonly agent: string;
  readonly imagesDir: string;
  /** Takes the place of the file of that name among the images. */
  readonly idMap: { readonly name: string; readonly file: string };
  readonly options: readonly string[];
  /** Places inside at which something of the host was mounted, devices and masks among them. */
  readonly places: readonly string[];
}

export interface Launched {
  readonly init: ProcessIdentity;
  /** What bubblewrap leaves beside the sandbox; of no use once the agent has answered. Nothing is left by a restore. */
  readonly monitor?: ProcessIdentity;
}

interface Watched {
  readonly identity: ProcessIdentity;
  readonly onExit: () => void;
}

const firstPauseMs = 50;
const longestPauseMs = 2000;

const restartHint =
  'It is started again by itself: try again in a moment. `coppice doctor` says whether it runs.';

type Answer = PromiseWithResolvers<Map<string, string>>;

/**
 * The daemon's side of `coppice-launch serve`: one process for every start, since spawning one from here each time would cost
 * more than the sandbox itself. Sandboxes do not depend on it: when it dies, the next request starts another.
 */
export class Launcher {
  readonly #options: LauncherOptions;
  readonly #pending = new Map<string, Answer>();
  readonly #watched = new Map<number, Watched>();
  #server: ChildProcessWithoutNullStreams | undefined;
  #sequence = 0;
  #closed = false;
  #pauseMs = firstPauseMs;
  #trouble: string | undefined;

  constructor(options: LauncherOptions) {
    this.#options = options;
  }

  get program(): string {
    return this.#options.program;
  }

  /** Why sandboxes cannot be started now; another one is being started. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** Starts the server ahead of the first request. */
  warmUp(): void {
    this.#ensureServer();
  }

  async start(request: LaunchRequest): Promise<Launched> {
    const answer = await this.#ask('start', launchFields(request));
    return {
      init: initIn(answer),
      monitor: { pid: Number(answer.get('monitor')), started: answer.get('monitorStarted') ?? '' },
    };
  }

  /** Returns when all of it runs again, with a listener of its own. */
  async restore(request: RestoreRequest): Promise<Launched> {
    const answer = await this.#ask('restore', [
      ...launchFields(request),
      ['criu', request.criu],
      ['agent', request.agent],
      ['images', request.imagesDir],
      ['map', request.idMap.file],
      ['map-name', request.idMap.name],
      ...request.options.map((option) => ['option', option] as const),
      ...request.places.map((place) => ['external', place] as const),
    ]);
    return { init: initIn(answer) };
  }

  /** Calls back once when the process is gone, however long ago that was. */
  async watch(identity: ProcessIdentity, onExit: () => void): Promise<void> {
    this.#watched.set(identity.pid, { identity, onExit });
    const answer = await this.#ask('watch', identityFields(identity));
    if (answer.get('running') !== '1') this.#announce(identity.pid);
  }

  /** Not waited for: should it be lost with the launcher, the monitor idles on until the sandbox ends. */
  endMonitor(monitor: ProcessIdentity, init: ProcessIdentity): void {
    this.#ask('end-monitor', [...identityFields(monitor), ['of', String(init.pid)]]).catch(() => {});
  }

  async setHostname(identity: ProcessIdentity, hostname: string): Promise<void> {
    await this.#ask('hostname', [...identityFields(identity), ['hostname', hostname]]);
  }

  /** Sandboxes go on; nothing of the launcher is left when it returns. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#watched.clear();
    const server = this.#server;
    if (server === undefined) return;
    const ended = new Promise<void>((resolve) => server.once('close', () => resolve()));
    server.stdin.end();
    await ended;
  }

  async #ask(verb: string, fields: LaunchFields): Promise<Map<string, string>> {
    const server = this.#ensureServer();
    const sequence = String(++this.#sequence);
    const waiting: Answer = Promise.withResolvers();
    this.#pending.set(sequence, waiting);
    server.stdin.write(encodeLaunchMessage([['seq', sequence], ['verb', verb], ...fields]));
    const answer = await waiting.promise;
    const error = answer.get('error');
    if (error !== undefined) throw new CoppiceError('internal', `the launcher could not ${verb}: ${error}`);
    return answer;
  }

  #ensureServer(): ChildProcessWithoutNullStreams {
    if (this.#closed) throw new CoppiceError('unavailable', 'the container driver is closed');
    if (this.#server !== undefined) return this.#server;
    const { program, agent, bubblewrap, standbys, v1Parents } = this.#options;
    const args = ['serve', '--bwrap', bubblewrap, '--agent', agent(), '--standbys', String(standbys)];
    for (const parent of v1Parents) args.push('--v1', parent);
    // A session of its own: an interrupt typed at the daemon's terminal is not meant for sandboxes.
    const server = spawn(program, args, { detached: true, env: {}, stdio: 'pipe' });
    this.#server = server;
    if (server.pid !== undefined) this.#options.onStarted?.(server.pid);
    const reader = new LaunchMessageReader();
    let complaint = '';
    server.stdout.on('data', (chunk: Buffer) => {
      for (const message of reader.push(chunk)) this.#hear(message);
    });
    server.stderr.on('data', (chunk: Buffer) => {
      complaint = (complaint + chunk.toString('utf8')).slice(-2000);
    });
    // A write to a server that has just died; its end is what is reported.
    server.stdin.on('error', () => {});
    server.on('error', (error) => this.#lose(server, `${program} could not be started: ${error.message}`));
    // Not its exit: by its end of stderr all that it had begun to start is through, and who fails for it can clear that away.
    server.on('close', () => this.#lose(server, `${program} ended unexpectedly. ${complaint}`.trim()));
    return server;
  }

  #hear(message: Map<string, string>): void {
    const exited = message.get('exited');
    if (exited !== undefined) this.#announce(Number(exited));
    this.#trouble = undefined;
    this.#pauseMs = firstPauseMs;
    const sequence = message.get('seq');
    if (sequence === undefined) return;
    this.#pending.get(sequence)?.resolve(message);
    this.#pending.delete(sequence);
  }

  #announce(pid: number): void {
    const watched = this.#watched.get(pid);
    this.#watched.delete(pid);
    watched?.onExit();
  }

  #lose(server: ChildProcessWithoutNullStreams, message: string): void {
    if (this.#server !== server) return;
    this.#server = undefined;
    const failure = new CoppiceError('unavailable', message, { hint: restartHint });
    for (const waiting of this.#pending.values()) waiting.reject(failure);
    this.#pending.clear();
    if (this.#closed) return;
    this.#trouble = message;
    // Not at once, lest a server that cannot live takes all the time there is.
    setTimeout(() => this.#comeBack(), this.#pauseMs).unref();
    this.#pauseMs = Math.min(2 * this.#pauseMs, longestPauseMs);
  }

  /** A question without an effect shows that it lives; failing leads back here. */
  #comeBack(): void {
    if (this.#closed) return;
    this.#ask('watch', identityFields({ pid: process.pid, started: '0' })).catch(() => {});
    for (const { identity, onExit } of [...this.#watched.values()]) {
      // Fails only when this server is lost in turn, which leads back here.
      this.watch(identity, onExit).catch(() => {});
    }
  }
}

const launchFields = (request: LaunchRequest): LaunchFields => [
  ['id', request.id],
  ['run', request.runDir],
  ...imageFields(request.image),
  ['disk', request.diskDir],
  ...request.mounts.flatMap(mountFields),
  ['hostname', request.hostname],
  ['base', String(request.firstId)],
  ['shm', String(Math.floor(request.memoryBytes / 2))],
  ['tmpfs', String(Math.floor(request.memoryBytes / 8))],
  ...(request.processors === undefined ? [] : [['processors', request.processors] as const]),
  ...request.shownCgroups.map((hierarchy) => ['cgroup', hierarchy] as const),
  ...(request.v2Directory === null ? [] : [['v2', request.v2Directory] as const]),
  ...request.settings.map(({ file, value }) => ['set', `${file} ${value}`] as const),
];

const mountFields = ({ hostPath, guestPath, readOnly, identity }: HostMount): LaunchFields => [
  ['mount', hostPath],
  ['mount-identity', identity ?? ''],
  ['mount-at', guestPath],
  ['mount-mode', readOnly ? 'ro' : 'rw'],
];

/** The one directory where it is alone, else what holds them all and each of them below. */
const imageFields = ({ directory, layers: [first, ...others] }: ImageRoot): LaunchFields =>
  others.length === 0
    ? [['image', join(directory, first)]]
    : [['image', directory], ...[first, ...others].map((layer) => ['layer', layer] as const)];

const initIn = (answer: Map<string, string>): ProcessIdentity => ({
  pid: Number(answer.get('pid')),
  started: answer.get('started') ?? '',
});

const identityFields = ({ pid, started }: ProcessIdentity): LaunchFields => [
  ['pid', String(pid)],
  ['started', started],
];
