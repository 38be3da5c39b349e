import {
  type Action,
  CoppiceError,
  defaultProject,
  permits,
  type RouteName,
  reaches,
  type Sandbox,
  type Snapshot,
} from '@coppice/protocol';
import type { DoorServices } from '../../door-services.ts';
import type { ConfinedDirectory } from '../../notes/confined-directory.ts';
import { Secrets } from '../../redaction/secrets.ts';
import type { Principal, Progress } from '../../services.ts';
import { ownerOf } from '../../sessions/sessions.ts';
import type { Handlers } from '../call.ts';
import type { CallInput, Calls } from '../calls.ts';

/** What every call of a tool shares. */
export interface McpParts {
  /** For looking at what there is; whatever a tool does goes through `calls`, as it does for every door. */
  readonly services: DoorServices;
  readonly calls: Calls;
  readonly transfers: ConfinedDirectory;
}

export interface Caller {
  readonly principal: Principal;
  /** Whose sandboxes the caller owns. */
  readonly session: string;
  readonly signal: AbortSignal;
  readonly report: (message: string, fraction?: number) => void;
}

interface CallExtras {
  readonly upload?: AsyncIterable<Uint8Array>;
  readonly progress?: Progress;
}

const heartbeatMs = 5_000;

/** One call of a tool: who calls, what they may reach, and all that the tool may do. */
export class ToolContext {
  readonly session: string;
  readonly signal: AbortSignal;
  readonly report: (message: string, fraction?: number) => void;
  /** Of every sandbox that this call looked at, and of its own arguments; answers are without them. */
  readonly secrets = new Secrets();
  readonly #parts: McpParts;
  readonly #principal: Principal;
  readonly #actions: ReadonlySet<Action>;

  /** `actions`: all that may be done in this context, by tokens that may. */
  constructor(parts: McpParts, caller: Caller, actions: readonly Action[]) {
    this.#parts = parts;
    this.#principal = caller.principal;
    this.#actions = new Set(actions);
    this.session = caller.session;
    this.signal = caller.signal;
    this.report = (message, fraction) => caller.report(this.secrets.redact(message), fraction);
  }

  /** Tokens that make sandboxes share them out by session; others own what they reach. */
  get #hasSessions(): boolean {
    return this.#principal.scope.kind === 'admin' || this.#principal.scope.kind === 'project';
  }

  /** The project that names without one are of. */
  async project(): Promise<string> {
    return (await this.#parts.calls.projectFor(this.#principal)) ?? defaultProject;
  }

  /** Whether the token may do that, to its own sandbox where it has one. */
  may(action: Action): boolean {
    return permits(this.#principal, action);
  }

  /** A call as it is made through HTTP: permitted, validated and run in the same way. */
  async call<N extends RouteName>(
    name: N,
    input: CallInput<N>,
    { upload, progress }: CallExtras = {},
  ): Promise<Awaited<ReturnType<Handlers[N]>>> {
    this.#assertDeclared(name);
    const { params, query, body } = input as { params?: unknown; query?: unknown; body?: unknown };
    const { calls } = this.#parts;
    return calls.run(await calls.admit(this.#principal, name, params, query), {
      body,
      signal: this.signal,
      progress,
      ...(this.#hasSessions ? { session: this.session } : {}),
      ...(upload === undefined ? {} : { upload }),
    });
  }

  /** The directory of the host that files are moved from and to. */
  get transfers(): ConfinedDirectory {
    this.#assertMay('transferFiles');
    return this.#parts.transfers;
  }

  async owns(sandbox: Sandbox): Promise<boolean> {
    return (await this.#reaches(sandbox.id)) && (!this.#hasSessions || ownerOf(sandbox) === this.session);
  }

  /** Looks at a sandbox; everyone's, for an admin token. A sandbox's own token learns nothing of others. */
  async look(ref: string): Promise<Sandbox> {
    const { services, calls } = this.#parts;
    if (!this.#hasSessions && !(await this.#reaches(ref)))
      throw new CoppiceError('forbidden', 'this token covers its own workspace only', {
        hint: 'Call workspace_list to see it.',
      });
    return this.#learn(await services.sandboxes.peek(await calls.refer(this.#principal, 'sandbox', ref)));
  }

  /** The id of a sandbox that this session may change. */
  async own(ref: string): Promise<string> {
    return (await this.ownSandbox(ref)).id;
  }

  async ownSandbox(ref: string): Promise<Sandbox> {
    const sandbox = await this.look(ref);
    if (await this.owns(sandbox)) return sandbox;
    throw new CoppiceError(
      'forbidden',
      `workspace ${sandbox.name} belongs to ${nameOf(ownerOf(sandbox))}, not to this session`,
      { hint: `Take it over first: workspace_adopt with workspace_id ${sandbox.id}.` },
    );
  }

  /** A snapshot to look into or to grow from: of a workspace of this session, or what the one that is named grew from. */
  async usableSnapshot(ref: string, sandbox: Sandbox): Promise<Snapshot> {
    const snapshot = await this.#findSnapshot(ref, sandbox);
    if (snapshot.id === sandbox.parent?.snapshot_id) return snapshot;
    await this.#assertOwnSnapshot(snapshot, ref, sandbox);
    return snapshot;
  }

  /** A snapshot that this session may delete. */
  async ownSnapshot(ref: string, sandbox: Sandbox): Promise<Snapshot> {
    const snapshot = await this.#findSnapshot(ref, sandbox);
    await this.#assertOwnSnapshot(snapshot, ref, sandbox);
    return snapshot;
  }

  async visible(): Promise<Sandbox[]> {
    const all = await this.#parts.services.sandboxes.list({});
    const reached: Sandbox[] = [];
    for (const sandbox of all) if (await this.#reaches(sandbox.id)) reached.push(await this.#learn(sandbox));
    return reached;
  }

  /** Tells the caller that the work goes on, for as long as it does. */
  async during<T>(message: string, work: () => Promise<T>): Promise<T> {
    this.report(message);
    const began = performance.now();
    const beat = setInterval(
      () => this.report(`${message} (${Math.round((performance.now() - began) / 1000)} s)`),
      heartbeatMs,
    );
    try {
      return await work();
    } finally {
      clearInterval(beat);
    }
  }

  #assertDeclared(action: Action): void {
    if (!this.#actions.has(action)) throw new Error(`this tool does not say that it does ${action}`);
  }

  #assertMay(action: Action): void {
    this.#assertDeclared(action);
    if (!this.may(action)) throw new CoppiceError('forbidden', 'the scope of this token does not cover this');
  }

  async #findSnapshot(ref: string, sandbox: Sandbox): Promise<Snapshot> {
    try {
      return await this.#parts.services.snapshots.get(ref, sandbox.id);
    } catch (error) {
      throw error instanceof CoppiceError && error.code === 'not_found' ? noSnapshot(ref, sandbox) : error;
    }
  }

  /** Snapshots outlive their workspaces and stay with the session that had those. */
  async #assertOwnSnapshot(snapshot: Snapshot, ref: string, sandbox: Sandbox): Promise<void> {
    if (snapshot.sandbox_id === sandbox.id) return;
    if (!this.#hasSessions || !(await this.#reachesSnapshot(snapshot.id))) throw noSnapshot(ref, sandbox);
    const owner = ownerOf({ labels: await this.#parts.services.snapshots.labels(snapshot.id) });
    if (owner === this.session) return;
    throw new CoppiceError(
      'forbidden',
      `snapshot ${snapshot.name} is of workspace ${snapshot.sandbox_name}, which belongs to ${nameOf(owner)}`,
      {
        hint: `Name a snapshot of ${sandbox.name} (snapshot_list shows them), or take that workspace over with workspace_adopt.`,
      },
    );
  }

  async #learn(sandbox: Sandbox): Promise<Sandbox> {
    if (sandbox.env_names.length > 0)
      this.secrets.addEnvironment(await this.#parts.services.sandboxes.environment(sandbox.id));
    return sandbox;
  }

  async #reaches(ref: string): Promise<boolean> {
    try {
      const found = await this.#parts.services.sandboxes.find(
        await this.#parts.calls.refer(this.#principal, 'sandbox', ref),
      );
      return found !== undefined && reaches(this.#principal.scope, found);
    } catch (error) {
      if (error instanceof CoppiceError) return false;
      throw error;
    }
  }

  async #reachesSnapshot(id: string): Promise<boolean> {
    const found = await this.#parts.services.snapshots.find(id);
    return found !== undefined && reaches(this.#principal.scope, found);
  }
}

const nameOf = (session: string | null): string =>
  session === null ? 'no session' : `the session ${session}`;

const noSnapshot = (ref: string, { name }: Sandbox): CoppiceError =>
  new CoppiceError('not_found', `workspace ${name} has no snapshot ${ref}`);
