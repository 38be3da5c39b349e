import type { GatewayEvent } from '@coppice/protocol';

const burst = 60;
const perSecond = 1;
const mostSandboxes = 10_000;

/** What a sandbox can bring about as often as it likes, without paying for it. */
const cheap: ReadonlySet<GatewayEvent['type']> = new Set([
  'model.refused',
  'connection.refused',
  'connection.asked',
  'recording.failed',
]);

/** Keeps one sandbox from filling the events of all with its refusals. What is left out is still on record as a connection. */
export class RefusalLimit {
  readonly #now: () => number;
  readonly #left = new Map<string, { tokens: number; atMs: number }>();

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  admits(event: GatewayEvent): boolean {
    if (!cheap.has(event.type)) return true;
    const now = this.#now();
    const before = this.#left.get(event.sandbox) ?? { tokens: burst, atMs: now };
    const tokens = Math.min(burst, before.tokens + (Math.max(0, now - before.atMs) / 1000) * perSecond);
    this.#left.delete(event.sandbox);
    if (this.#left.size >= mostSandboxes) this.#left.delete(this.#left.keys().next().value!);
    this.#left.set(event.sandbox, { tokens: tokens < 1 ? tokens : tokens - 1, atMs: now });
    return tokens >= 1;
  }
}
