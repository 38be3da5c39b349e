import { CoppiceError, covers, type Sandbox } from '@coppice/protocol';
import type { KeyedLock } from '../../journal/keyed-lock.ts';
import type { ConfinedDirectory } from '../../notes/confined-directory.ts';
import type { Vault } from '../../notes/vault.ts';
import { Secrets } from '../../redaction/secrets.ts';
import type { Principal, Services } from '../../services.ts';
import { ownedBy, ownerOf, type Sessions } from '../../sessions/sessions.ts';

/** What every call of a tool shares. */
export interface McpParts {
  readonly services: Services;
  readonly sessions: Sessions;
  readonly transfers: ConfinedDirectory;
  readonly vault: Vault;
  /** By the name of the workspace that is prepared. */
  readonly preparing: KeyedLock;
}

export interface Caller {
  readonly principal: Principal;
  /** Whose sandboxes the caller owns. */
  readonly session: string;
  readonly signal: AbortSignal;
  readonly report: (message: string, fraction?: number) => void;
}

const heartbeatMs = 5_000;

/** One call of a tool: who calls, what they may reach, and the services behind. */
export class ToolContext {
  readonly services: Services;
  readonly sessions: Sessions;
  readonly transfers: ConfinedDirectory;
  readonly vault: Vault;
  readonly preparing: KeyedLock;
  readonly session: string;
  readonly signal: AbortSignal;
  readonly report: (message: string, fraction?: number) => void;
  /** Of every sandbox that this call looked at, and of its own arguments; answers are without them. */
  readonly secrets = new Secrets();
  readonly #principal: Principal;

  constructor(parts: McpParts, caller: Caller) {
    this.services = parts.services;
    this.sessions = parts.sessions;
    this.transfers = parts.transfers;
    this.vault = parts.vault;
    this.preparing = parts.preparing;
    this.session = caller.session;
    this.signal = caller.signal;
    this.report = (message, fraction) => caller.report(this.secrets.redact(message), fraction);
    this.#principal = caller.principal;
  }

  get isAdmin(): boolean {
    return this.#principal.scope.kind === 'admin';
  }

  /** The labels that make a new sandbox this session's own. */
  get ownership(): Record<string, string> {
    return ownedBy(this.session);
  }

  owns(sandbox: Sandbox): boolean {
    return this.isAdmin ? ownerOf(sandbox) === this.session : this.#reaches(sandbox.id);
  }

  /** Looks at a sandbox; everyone's, for an admin token. A sandbox's own token learns nothing of others. */
  look(ref: string): Sandbox {
    if (!this.isAdmin && !this.#reaches(this.services.sandboxes.find(ref)))
      throw new CoppiceError('forbidden', 'this token reaches its own workspace only', {
        hint: 'Call workspace_list to see it.',
      });
    return this.#learn(this.services.sandboxes.peek(ref));
  }

  /** The id of a sandbox that this session may change. */
  own(ref: string): string {
    return this.ownSandbox(ref).id;
  }

  ownSandbox(ref: string): Sandbox {
    const sandbox = this.look(ref);
    if (this.owns(sandbox)) return sandbox;
    const owner = ownerOf(sandbox);
    throw new CoppiceError(
      'forbidden',
      `workspace ${sandbox.name} belongs to ${owner === null ? 'no session' : `the session ${owner}`}, not to this one`,
      { hint: `Take it over first: workspace_adopt with workspace_id ${sandbox.id}.` },
    );
  }

  async visible(): Promise<Sandbox[]> {
    const all = await this.services.sandboxes.list({});
    const visible = this.isAdmin ? all : all.filter((sandbox) => this.#reaches(sandbox.id));
    return visible.map((sandbox) => this.#learn(sandbox));
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

  #learn(sandbox: Sandbox): Sandbox {
    if (sandbox.env_names.length > 0)
      this.secrets.addEnvironment(this.services.sandboxes.environment(sandbox.id));
    return sandbox;
  }

  #reaches(id: string | undefined): boolean {
    return covers(this.#principal.scope, 'sandbox', id);
  }
}
