import { CoppiceError, type Sandbox } from '@coppice/protocol';
import type { Services } from '../services.ts';

/** Kept with the sandbox, so that ownership survives restarts of client and daemon. */
const ownerLabel = 'mcp.session';

export const ownerOf = (sandbox: Pick<Sandbox, 'labels'>): string | null =>
  sandbox.labels[ownerLabel] ?? null;
export const ownedBy = (session: string): Record<string, string> => ({ [ownerLabel]: session });

export interface SessionsOptions {
  readonly maxSandboxes: number;
  /** A session that called within this time counts as live. */
  readonly liveForMs?: number;
  readonly nowMs?: () => number;
}

/** Who calls, who was here lately, and how much each may have. */
export class Sessions {
  readonly #maxSandboxes: number;
  readonly #liveForMs: number;
  readonly #nowMs: () => number;
  readonly #startedMs: number;
  readonly #lastSeenMs = new Map<string, number>();
  readonly #calls = new Map<string, number>();
  readonly #reserved = new Map<string, number>();
  #released = 0;

  constructor({ maxSandboxes, liveForMs = 60_000, nowMs = () => performance.now() }: SessionsOptions) {
    this.#maxSandboxes = maxSandboxes;
    this.#liveForMs = liveForMs;
    this.#nowMs = nowMs;
    this.#startedMs = nowMs();
  }

  /** Returns the function that ends the call. */
  enter(session: string): () => void {
    this.#calls.set(session, (this.#calls.get(session) ?? 0) + 1);
    this.#lastSeenMs.set(session, this.#nowMs());
    return () => {
      const left = (this.#calls.get(session) ?? 1) - 1;
      if (left > 0) this.#calls.set(session, left);
      else this.#calls.delete(session);
      this.#lastSeenMs.set(session, this.#nowMs());
      this.#forgetOld();
    };
  }

  /** Who called just before the daemon was started again is not known: for a while, every session may be live. */
  isLive(session: string): boolean {
    const seenMs = this.#lastSeenMs.get(session) ?? this.#startedMs;
    return this.#calls.has(session) || this.#nowMs() - seenMs < this.#liveForMs;
  }

  /** Holds room for that many new sandboxes while the work goes on: two calls at once do not share the last place. */
  async withRoom<T>(services: Services, session: string, count: number, work: () => Promise<T>): Promise<T> {
    const owned = await this.#countOwned(services, session);
    const pending = this.#reserved.get(session) ?? 0;
    if (owned + pending + count > this.#maxSandboxes)
      throw new CoppiceError(
        'limit_reached',
        `this session has ${owned} of the ${this.#maxSandboxes} workspaces it may have, and asks for ${count} more`,
        {
          hint: 'Destroy workspaces you are done with: workspace_list shows them (owned: true), workspace_destroy removes one.',
          details: { owned, limit: this.#maxSandboxes },
        },
      );
    this.#reserved.set(session, pending + count);
    try {
      return await work();
    } finally {
      this.#released += 1;
      const left = (this.#reserved.get(session) ?? count) - count;
      if (left > 0) this.#reserved.set(session, left);
      else this.#reserved.delete(session);
    }
  }

  /** Counts again when something was finished meanwhile: it is then in no reservation, and may not be in the list yet. */
  async #countOwned(services: Services, session: string): Promise<number> {
    for (;;) {
      const before = this.#released;
      const sandboxes = await services.sandboxes.list({});
      if (before === this.#released)
        return sandboxes.filter((sandbox) => ownerOf(sandbox) === session).length;
    }
  }

  #forgetOld(): void {
    if (this.#lastSeenMs.size < 1000) return;
    for (const session of this.#lastSeenMs.keys())
      if (!this.isLive(session)) this.#lastSeenMs.delete(session);
  }
}
