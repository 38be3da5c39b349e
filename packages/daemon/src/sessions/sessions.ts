import { type AdoptedSandbox, CoppiceError, type Sandbox, type Session } from '@coppice/protocol';

/** Kept with the sandbox, so that ownership survives restarts of client and daemon. */
const ownerLabel = 'mcp.session';

export const ownerOf = (sandbox: Pick<Sandbox, 'labels'>): string | null =>
  sandbox.labels[ownerLabel] ?? null;
export const ownedBy = (session: string): Record<string, string> => ({ [ownerLabel]: session });

/** What a session owns is written down with the sandboxes. */
interface OwnedSandboxes {
  peek(ref: string): Sandbox;
  list(query: Record<string, never>): Promise<Sandbox[]>;
  update(ref: string, changes: { labels: Record<string, string> }): Promise<Sandbox>;
}

export interface SessionsOptions {
  readonly sandboxes: OwnedSandboxes;
  readonly maxSandboxes: number;
  /** After which time what a session makes is destroyed unless it says otherwise; null: never. */
  readonly lifetimeS?: number | null;
  /** A session that called within this time counts as live. */
  readonly liveForMs?: number;
  readonly nowMs?: () => number;
}

/** Who calls, who was here lately, and how much each may have. */
export class Sessions {
  readonly #sandboxes: OwnedSandboxes;
  readonly lifetimeS: number | null;
  readonly #maxSandboxes: number;
  readonly #liveForMs: number;
  readonly #nowMs: () => number;
  readonly #startedMs: number;
  readonly #lastSeenMs = new Map<string, number>();
  readonly #calls = new Map<string, number>();
  readonly #reserved = new Map<string, number>();
  #released = 0;

  constructor({
    sandboxes,
    maxSandboxes,
    lifetimeS = null,
    liveForMs = 60_000,
    nowMs = () => performance.now(),
  }: SessionsOptions) {
    this.#sandboxes = sandboxes;
    this.#maxSandboxes = maxSandboxes;
    this.lifetimeS = lifetimeS;
    this.#liveForMs = liveForMs;
    this.#nowMs = nowMs;
    this.#startedMs = nowMs();
  }

  /** A call of the session begins; `end` ends it. */
  begin(session: string): void {
    this.#calls.set(session, (this.#calls.get(session) ?? 0) + 1);
    this.#lastSeenMs.set(session, this.#nowMs());
  }

  end(session: string): void {
    const left = (this.#calls.get(session) ?? 1) - 1;
    if (left > 0) this.#calls.set(session, left);
    else this.#calls.delete(session);
    this.#lastSeenMs.set(session, this.#nowMs());
    this.#forgetOld();
  }

  /** Who called just before the daemon was started again is not known: for a while, every session may be live. */
  isLive(session: string): boolean {
    const seenMs = this.#lastSeenMs.get(session) ?? this.#startedMs;
    return this.#calls.has(session) || this.#nowMs() - seenMs < this.#liveForMs;
  }

  /** All that own something or were here lately, by name. */
  async list(): Promise<Session[]> {
    const owned = Map.groupBy(await this.#sandboxes.list({}), ownerOf);
    const names = new Set([...owned.keys(), ...this.#lastSeenMs.keys()].filter((name) => name !== null));
    return [...names].sort().map((name) => ({
      name,
      live: this.isLive(name),
      sandboxes: (owned.get(name) ?? []).map(({ id, name: called, state }) => ({ id, name: called, state })),
      limit: this.#maxSandboxes,
    }));
  }

  /** Makes a sandbox a session's own; from a session that is at work only by force. */
  async adopt(ref: string, session: string, force: boolean): Promise<AdoptedSandbox> {
    const sandbox = this.#sandboxes.peek(ref);
    const owner = ownerOf(sandbox);
    if (owner === session) return { sandbox, adopted: false, forced: false };
    const live = owner !== null && this.isLive(owner);
    if (live && !force)
      throw new CoppiceError(
        'forbidden',
        `sandbox ${sandbox.name} belongs to the session ${owner}, which is at work`,
        { hint: 'Leave it to that session, or take it by force (force, `coppice sessions adopt --force`).' },
      );
    const labels = { ...sandbox.labels, ...ownedBy(session) };
    const adopted = await this.withRoom(session, 1, () => this.#sandboxes.update(sandbox.id, { labels }));
    return { sandbox: adopted, adopted: true, forced: live };
  }

  /** Makes sandboxes: a session owns those that it asks for, and has room for all of them or gets none. */
  making<I extends { labels?: Record<string, string> | undefined }, T>(
    session: string | undefined,
    count: number,
    input: I,
    make: (input: I) => Promise<T>,
  ): Promise<T> {
    if (session === undefined) return make(input);
    const owned = { ...input, labels: { ...input.labels, ...ownedBy(session) } };
    return this.withRoom(session, count, () => make(owned));
  }

  /** Holds room for that many new sandboxes while the work goes on: two calls at once do not share the last place. */
  async withRoom<T>(session: string, count: number, work: () => Promise<T>): Promise<T> {
    const owned = await this.#countOwned(session);
    const pending = this.#reserved.get(session) ?? 0;
    if (owned + pending + count > this.#maxSandboxes)
      throw new CoppiceError(
        'limit_reached',
        `the session ${session} has ${owned} of the ${this.#maxSandboxes} sandboxes it may have, and asks for ${count} more`,
        {
          hint: 'Destroy what it is done with: `coppice sessions ls` shows what it has, `coppice rm NAME` destroys one.',
          details: { owned, limit: this.#maxSandboxes },
        },
      );
    this.#reserved.set(session, pending + count);
    try {
      return await work();
    } finally {
      this.#released += 1;
      this.#release(session, count);
    }
  }

  #release(session: string, count: number): void {
    const left = (this.#reserved.get(session) ?? count) - count;
    if (left > 0) this.#reserved.set(session, left);
    else this.#reserved.delete(session);
  }

  /**
   * For workers that are destroyed when the work ends. They belong to a session of their own, which is live for as long: they
   * take no place of the session that asks for them, and nobody adopts them meanwhile. A session has no more than `most` at once.
   */
  async withWorkers<T>(
    session: string,
    count: number,
    most: number,
    work: (owner: string) => Promise<T>,
  ): Promise<T> {
    const owner = `${session}.swarm`;
    const busy = this.#reserved.get(owner) ?? 0;
    if (busy + count > most)
      throw new CoppiceError(
        'limit_reached',
        `the session ${session} has swarms with ${busy} workers at work, and may have ${most} workers at once`,
        { hint: 'Wait for them to end, or run fewer tasks.', details: { busy, limit: most } },
      );
    this.begin(owner);
    this.#reserved.set(owner, busy + count);
    try {
      return await work(owner);
    } finally {
      this.#release(owner, count);
      this.end(owner);
    }
  }

  /** Counts again when something was finished meanwhile: it is then in no reservation, and may not be in the list yet. */
  async #countOwned(session: string): Promise<number> {
    for (;;) {
      const before = this.#released;
      const sandboxes = await this.#sandboxes.list({});
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
