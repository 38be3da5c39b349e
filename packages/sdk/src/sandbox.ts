import type {
  Answered,
  CreatedSandbox,
  Destroyed,
  ExecResult,
  Merged,
  NetworkConnection,
  Question,
  RouteBody,
  RouteResult,
  SandboxDetail,
  Sandbox as SandboxInfo,
  Snapshot,
  Swarm,
  SwarmEvent,
  TakenSnapshot,
} from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';
import { lastEvent } from './connection/last-event.ts';
import { type ExportOptions, exportSnapshot } from './export-snapshot.ts';
import { Files } from './files/files.ts';
import { Git } from './git.ts';
import { Jobs } from './jobs.ts';
import type {
  CommandLine,
  DestroyOptions,
  ExecOptions,
  ForkOptions,
  MergeOptions,
  ProcessOptions,
  RestoreOptions,
  SnapshotOptions,
  SwarmOptions,
} from './options.ts';
import { Ports } from './ports.ts';
import type { ProcessStream } from './process-stream.ts';
import { Terminals } from './terminals.ts';

export interface Forks {
  readonly snapshot_id: string;
  readonly sandboxes: Sandbox[];
  /** Forks that did not come to be; the others did. */
  readonly failures: RouteResult<'forkSandbox'>['failures'];
  /** Mounted directories of the host, which no fork has. */
  readonly left_out: readonly string[];
}

/** One sandbox. `await using` destroys it at the end of the block. */
export class Sandbox implements AsyncDisposable {
  readonly id: string;
  readonly #caller: Caller;
  readonly #params: { readonly sandbox: string };
  readonly #token: string | undefined;
  readonly #memoryNotice: string | undefined;
  #info: SandboxInfo | undefined;

  /** `ref`: its id, or a name that every call will look up. */
  constructor(caller: Caller, ref: string, info?: SandboxInfo) {
    this.#caller = caller;
    this.#info = info;
    // Told once, at creation; later answers about the sandbox lack it.
    this.#token = (info as CreatedSandbox | undefined)?.token;
    this.#memoryNotice = (info as CreatedSandbox | undefined)?.memory_notice ?? undefined;
    this.id = ref;
    this.#params = { sandbox: ref };
  }

  get files(): Files {
    return new Files(this.#caller, this.id);
  }

  get git(): Git {
    return new Git(this.#caller, this.id);
  }

  get jobs(): Jobs {
    return new Jobs(this.#caller, this.id);
  }

  get terminals(): Terminals {
    return new Terminals(this.#caller, this.id);
  }

  get ports(): Ports {
    return new Ports(this.#caller, this.id);
  }

  /** Why checkpoint, pause and sleep will be refused, and what to do; known to whoever created it, where they will be. */
  get memoryNotice(): string | undefined {
    return this.#memoryNotice;
  }

  get name(): string {
    return this.#info?.name ?? this.id;
  }

  /** As the last call that answered with it saw it; `inspect()` looks again. Nothing for a handle from `at()`. */
  get info(): SandboxInfo | undefined {
    return this.#info;
  }

  /** Reaches this sandbox only; known to whoever created it. */
  get token(): string | undefined {
    return this.#token;
  }

  async inspect({ signal }: CallOptions = {}): Promise<SandboxDetail> {
    const detail = await this.#caller.call('getSandbox', { params: this.#params, signal });
    this.#info = detail;
    return detail;
  }

  /** Runs a command and collects its output. A command that fails is an answer, not an error: look at `exit_code`. */
  exec(command: CommandLine, { signal, ...rest }: ExecOptions = {}): Promise<ExecResult> {
    return this.#caller.call('exec', { params: this.#params, body: { command, ...rest }, signal });
  }

  /** Runs a command with its output as it comes and its input open. */
  async execStream(command: CommandLine, options: ProcessOptions = {}): Promise<ProcessStream> {
    // Loaded when it is used, with the WebSocket client below it.
    const { ProcessStream } = await import('./process-stream.ts');
    return ProcessStream.start(this.#caller, this.#params, command, options);
  }

  async update(changes: RouteBody<'updateSandbox'>, { signal }: CallOptions = {}): Promise<this> {
    this.#info = await this.#caller.call('updateSandbox', { params: this.#params, body: changes, signal });
    return this;
  }

  async start({ signal }: CallOptions = {}): Promise<this> {
    this.#info = await this.#caller.call('startSandbox', { params: this.#params, signal });
    return this;
  }

  async stop({ signal, ...body }: RouteBody<'stopSandbox'> & CallOptions = {}): Promise<this> {
    this.#info = await this.#caller.call('stopSandbox', { params: this.#params, body, signal });
    return this;
  }

  async pause({ signal, ...body }: RouteBody<'pauseSandbox'> & CallOptions = {}): Promise<this> {
    this.#info = await this.#caller.call('pauseSandbox', { params: this.#params, body, signal });
    return this;
  }

  async resume({ signal }: CallOptions = {}): Promise<this> {
    this.#info = await this.#caller.call('resumeSandbox', { params: this.#params, signal });
    return this;
  }

  /** Its snapshots stay unless told otherwise; the answer names those that do. */
  destroy({ signal, ...query }: DestroyOptions = {}): Promise<Destroyed> {
    return this.#caller.call('destroySandbox', { params: this.#params, query, signal });
  }

  async snapshot({ signal, ...body }: SnapshotOptions = {}): Promise<TakenSnapshot & SnapshotActions> {
    const taken = await this.#caller.call('createSnapshot', { params: this.#params, body, signal });
    return snapshotOf(this.#caller, taken);
  }

  /** A snapshot with the memory of every process. */
  checkpoint(options: Omit<SnapshotOptions, 'memory'> = {}): Promise<TakenSnapshot & SnapshotActions> {
    return this.snapshot({ ...options, memory: true });
  }

  async snapshots({ signal }: CallOptions = {}): Promise<(Snapshot & SnapshotActions)[]> {
    const { items } = await this.#caller.call('listSandboxSnapshots', { params: this.#params, signal });
    return items.map((snapshot) => snapshotOf(this.#caller, snapshot));
  }

  /** By id, or by name within this sandbox. What was there before is a snapshot too, unless it is to be discarded. */
  restore(
    snapshot: string,
    { signal, ...rest }: RestoreOptions = {},
  ): Promise<RouteResult<'restoreSandbox'>> {
    const body = { snapshot, ...rest };
    return this.#caller.call('restoreSandbox', { params: this.#params, body, signal });
  }

  async fork({ signal, ...body }: ForkOptions = {}): Promise<Forks> {
    const forked = await this.#caller.call('forkSandbox', { params: this.#params, body, signal });
    return forksOf(this.#caller, forked);
  }

  /** Brings what changed in a fork since its base into this sandbox. Conflicts are an error and nothing is written. */
  merge(from: Sandbox | string, { signal, ...rest }: MergeOptions = {}): Promise<Merged> {
    const body = { from: typeof from === 'string' ? from : from.id, ...rest };
    return this.#caller.call('merge', { params: this.#params, body, signal });
  }

  /** Runs each task in its own fork of a snapshot (`golden` by default). A task that fails is an answer: look at `success`. */
  async swarm(
    tasks: RouteBody<'runSwarm'>['tasks'],
    { signal, onEvent, ...rest }: SwarmOptions = {},
  ): Promise<Swarm> {
    const events = this.#caller.events('runSwarm', {
      params: this.#params,
      body: { tasks, ...rest },
      signal,
    });
    return (await lastEvent<SwarmEvent, 'swarm'>(events, 'swarm', (event) => onEvent?.(event))).swarm;
  }

  /** Until something inside takes connections on that port; a minute unless told otherwise, then `timeout`. */
  waitForPort(
    port: number,
    { timeout_ms, signal }: { readonly timeout_ms?: number | undefined } & CallOptions = {},
  ): Promise<RouteResult<'waitForPort'>> {
    const params = { ...this.#params, port };
    return this.#caller.call('waitForPort', {
      params,
      body: timeout_ms === undefined ? {} : { timeout_ms },
      signal,
    });
  }

  async setNetwork(policy: RouteBody<'setNetwork'>, { signal }: CallOptions = {}): Promise<this> {
    this.#info = await this.#caller.call('setNetwork', { params: this.#params, body: policy, signal });
    return this;
  }

  /** For which run, agent and project its calls to models count. */
  callsFor({ signal }: CallOptions = {}): Promise<RouteBody<'setCaller'>> {
    return this.#caller.call('getCaller', { params: this.#params, signal });
  }

  async setCallsFor(whom: RouteBody<'setCaller'>, { signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('setCaller', { params: this.#params, body: whom, signal });
  }

  /** What it reached by name and what was refused to it: what there is, then each as it comes, until the signal. */
  async *connections({
    after = 0,
    signal,
  }: CallOptions & { readonly after?: number } = {}): AsyncGenerator<NetworkConnection> {
    let last = after;
    for (let waitMs = 0; ; waitMs = 25_000) {
      const query = { after: last, limit: 1000, wait_ms: waitMs };
      const { connections } = await this.#caller.call('listConnections', {
        params: this.#params,
        query,
        signal,
      });
      for (const connection of connections) {
        last = connection.id;
        yield connection;
      }
    }
  }

  /** Names that it wants to reach and that nobody has allowed or refused yet. Its policy must say `ask`. */
  async questions({ signal }: CallOptions = {}): Promise<Question[]> {
    return (await this.#caller.call('listQuestions', { params: this.#params, signal })).items;
  }

  answer(answer: RouteBody<'answerQuestion'>, { signal }: CallOptions = {}): Promise<Answered> {
    return this.#caller.call('answerQuestion', { params: this.#params, body: answer, signal });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.destroy();
  }
}

/** A sandbox as a list has it: what is known of it, and all that can be done with it. */
export type ListedSandbox = Sandbox & SandboxInfo;

export const listedSandbox = (caller: Caller, info: SandboxInfo): ListedSandbox => {
  const sandbox = new Sandbox(caller, info.id, info);
  for (const [key, value] of Object.entries(info))
    Object.defineProperty(sandbox, key, { value, enumerable: true });
  return sandbox as ListedSandbox;
};

export const forksOf = (caller: Caller, forked: RouteResult<'forkSandbox'>): Forks => ({
  snapshot_id: forked.snapshot_id,
  sandboxes: forked.forks.map((info) => new Sandbox(caller, info.id, info)),
  failures: forked.failures,
  left_out: forked.left_out,
});

/** What can be done with a snapshot that a call answered with; `coppice.snapshots` does the same by reference. */
export class SnapshotActions {
  readonly #caller: Caller;
  readonly #id: string;

  constructor(caller: Caller, id: string) {
    this.#caller = caller;
    this.#id = id;
  }

  async fork({ signal, ...body }: RouteBody<'forkSnapshot'> & CallOptions = {}): Promise<Forks> {
    const params = { snapshot: this.#id };
    return forksOf(this.#caller, await this.#caller.call('forkSnapshot', { params, body, signal }));
  }

  /** Keeps an automatic one for good; gives any another name or note. */
  async keep({ signal, ...body }: RouteBody<'updateSnapshot'> & CallOptions = {}): Promise<Snapshot> {
    return this.#caller.call('updateSnapshot', { params: { snapshot: this.#id }, body, signal });
  }

  async delete({ signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('deleteSnapshot', { params: { snapshot: this.#id }, signal });
  }

  /** One file that `coppice.snapshots.import` takes in, on this machine or another. */
  export(options: ExportOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    return exportSnapshot(this.#caller, this.#id, options);
  }
}

export const snapshotOf = <T extends Snapshot>(caller: Caller, snapshot: T): T & SnapshotActions =>
  Object.assign(new SnapshotActions(caller, snapshot.id), snapshot);
