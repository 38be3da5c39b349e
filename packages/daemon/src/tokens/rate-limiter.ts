import { CoppiceError } from '@coppice/protocol';

export interface RateLimit {
  readonly perSecond: number;
  readonly burst: number;
}

interface Bucket {
  tokens: number;
  filledAtMs: number;
}

/** A document of this size costs a caller a second's worth of calls, and no document costs more. */
const bytesPerSecond = 32 * 1024 * 1024;
const fewBuckets = 10_000;

/** A token bucket for each caller. */
export class RateLimiter {
  readonly #limit: RateLimit;
  readonly #nowMs: () => number;
  readonly #buckets = new Map<string, Bucket>();
  #lookAgainAt = fewBuckets;

  constructor(limit: RateLimit, nowMs: () => number = () => performance.now()) {
    this.#limit = limit;
    this.#nowMs = nowMs;
  }

  /** Takes one, or throws rate_limited with how long to wait. */
  take(key: string): void {
    const bucket = this.#filled(key);
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
  }

  /** Counts a large document as more than one call: it is served, and the next calls wait for it. */
  charge(key: string, bytes: number): void {
    this.#filled(key).tokens -= this.#limit.perSecond * Math.min(1, bytes / bytesPerSecond);
  }

  #filled(key: string): Bucket {
    const nowMs = this.#nowMs();
    let bucket = this.#buckets.get(key);
    if (bucket === undefined) {
      bucket = { tokens: this.#limit.burst, filledAtMs: nowMs };
      this.#buckets.set(key, bucket);
      if (this.#buckets.size > this.#lookAgainAt) this.#forgetFull(nowMs);
    }
    const earned = ((nowMs - bucket.filledAtMs) / 1000) * this.#limit.perSecond;
    bucket.tokens = Math.min(this.#limit.burst, bucket.tokens + earned);
    bucket.filledAtMs = nowMs;
    return bucket;
  }

  /** A full bucket says no more than none at all. Looked for only when their number has doubled. */
  #forgetFull(nowMs: number): void {
    const { perSecond, burst } = this.#limit;
    for (const [key, { tokens, filledAtMs }] of this.#buckets)
      if (tokens + ((nowMs - filledAtMs) / 1000) * perSecond >= burst) this.#buckets.delete(key);
    this.#lookAgainAt = Math.max(fewBuckets, this.#buckets.size * 2);
  }
}
