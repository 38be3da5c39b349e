import type { Costs, Diff, Doctor, LineageNode, Patch, RouteQuery, RouteResult } from '@coppice/protocol';
import { Branches } from './branches.ts';
import { Caller, type CallOptions } from './connection/caller.ts';
import type { Transport } from './connection/transport.ts';
import { Events } from './events.ts';
import { Repositories } from './forge.ts';
import { Budgets, Secrets } from './gateway.ts';
import { Guardian } from './guardian.ts';
import { Images } from './images.ts';
import { Notes } from './notes.ts';
import type { DiffOptions, PatchOptions } from './options.ts';
import { Production, Projects } from './projects.ts';
import { Runs } from './runs.ts';
import { Sandboxes } from './sandboxes.ts';
import { Sessions } from './sessions.ts';
import { Snapshots } from './snapshots.ts';
import { Strays } from './strays.ts';
import { Tokens } from './tokens.ts';

/** Everything that a client of one daemon can do, over any transport. */
export class Client implements Disposable {
  readonly sandboxes: Sandboxes;
  readonly snapshots: Snapshots;
  readonly strays: Strays;
  readonly images: Images;
  readonly notes: Notes;
  readonly runs: Runs;
  readonly sessions: Sessions;
  readonly tokens: Tokens;
  readonly events: Events;
  readonly secrets: Secrets;
  readonly budgets: Budgets;
  readonly repositories: Repositories;
  readonly projects: Projects;
  readonly production: Production;
  readonly branches: Branches;
  readonly guardian: Guardian;
  readonly #caller: Caller;

  constructor(transport: Transport) {
    this.#caller = new Caller(transport);
    this.sandboxes = new Sandboxes(this.#caller);
    this.snapshots = new Snapshots(this.#caller);
    this.strays = new Strays(this.#caller);
    this.images = new Images(this.#caller);
    this.notes = new Notes(this.#caller);
    this.runs = new Runs(this.#caller);
    this.sessions = new Sessions(this.#caller);
    this.tokens = new Tokens(this.#caller);
    this.events = new Events(this.#caller);
    this.secrets = new Secrets(this.#caller);
    this.budgets = new Budgets(this.#caller);
    this.repositories = new Repositories(this.#caller);
    this.projects = new Projects(this.#caller);
    this.production = new Production(this.#caller);
    this.branches = new Branches(this.#caller);
    this.guardian = new Guardian(this.#caller);
  }

  health({ signal }: CallOptions = {}): Promise<RouteResult<'health'>> {
    return this.#caller.call('health', { signal });
  }

  /** Whose token this client calls with, and what it reaches. */
  whoami({ signal }: CallOptions = {}): Promise<RouteResult<'whoami'>> {
    return this.#caller.call('whoami', { signal });
  }

  /** A link that signs a browser in once, with the scope of this client's token. */
  pageLink({ signal }: CallOptions = {}): Promise<RouteResult<'createPageLink'>> {
    return this.#caller.call('createPageLink', { signal });
  }

  doctor({ signal }: CallOptions = {}): Promise<Doctor> {
    return this.#caller.call('doctor', { signal });
  }

  /** What calls to models took and cost: the total, and rows by what `by` names. */
  costs({ signal, ...query }: RouteQuery<'getCosts'> & CallOptions = {}): Promise<Costs> {
    return this.#caller.call('getCosts', { query, signal });
  }

  /** In the text format of Prometheus. */
  metrics({ signal }: CallOptions = {}): Promise<string> {
    return this.#caller.text('metrics', { signal });
  }

  /**
   * Files that differ, all or those below some paths. Each side is a snapshot (id, or `sandbox:name`) or a sandbox as it is
   * now.
   */
  diff(from: string, to: string, { signal, ...rest }: DiffOptions = {}): Promise<Diff> {
    return this.#caller.call('diff', { query: { from, to, ...rest }, signal });
  }

  /** The same as one patch for `git apply`; it says what no patch can hold. */
  patch(from: string, to: string, { signal, ...rest }: PatchOptions = {}): Promise<Patch> {
    return this.#caller.call('diffPatch', { query: { from, to, ...rest }, signal });
  }

  diffFile(
    from: string,
    to: string,
    path: string,
    { signal, ...rest }: Omit<RouteQuery<'diffFile'>, 'from' | 'to' | 'path'> & CallOptions = {},
  ): Promise<RouteResult<'diffFile'>> {
    return this.#caller.call('diffFile', { query: { from, to, path, ...rest }, signal });
  }

  /** What grew from what. */
  async lineage({ signal, ...query }: RouteQuery<'lineage'> & CallOptions = {}): Promise<LineageNode[]> {
    return (await this.#caller.call('lineage', { query, signal })).nodes;
  }

  close(): void {
    this.#caller.transport.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
