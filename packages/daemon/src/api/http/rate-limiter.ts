import { CoppiceError } from '@coppice/protocol';

export interface RateLimit {
  readonly perSecond: number;
  readonly burst: number;
}

interface Bucket {
  tokens: number;
  filledAtMs: number;
}

/** A token bucket for each caller. */
export class RateLimiter {
  readonly #limit: RateLimit;
  readonly #nowMs: () => number;
  readonly #buckets = new Map<string, Bucket>();

  constructor(limit: RateLimit, nowMs: () => number = () => performance.now()) {
    this.#limit = limit;
    this.#nowMs = nowMs;
  }

  /** Takes one, or throws rate_limited with how long to wait. */
  take(key: string): void {
    const nowMs = this.#nowMs();
    const bucket = this.#buckets.get(key) ?? { tokens: this.#limit.burst, filledAtMs: nowMs };
    const earned = ((nowMs - bucket.filledAtMs) / 1000) * this.#limit.perSecond;
    bucket.tokens = Math.min(this.#limit.burst, bucket.tokens + earned);
    bucket.filledAtMs = nowMs;
    this.#buckets.set(key, bucket);
    if (bucket.tokens < 1) {
      const waitS = Math.max(1, Math.ceil((1 - bucket.tokens) / this.#limit.perSecond));
      throw new CoppiceError(
        'rate_limited',
        `more than ${this.#limit.perSecond} calls a second with this token`,
        {
          hint: `Wait ${waitS} s, then try again.`,
          details: { retry_after_s: waitS },
        },
      );
    }
    bucket.tokens -= 1;
    if (this.#buckets.size > 10_000) this.#forgetFull();
  }

  /** A full bucket says no more than none at all. */
  #forgetFull(): void {
    for (const [key, bucket] of this.#buckets) {
      if (bucket.tokens >= this.#limit.burst - 1) this.#buckets.delete(key);
    }
  }
}
