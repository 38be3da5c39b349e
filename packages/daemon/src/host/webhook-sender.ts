import { createHmac, randomBytes } from 'node:crypto';

const answerMs = 10_000;
const longestPauseMs = 3_600_000;

export interface Post {
  readonly url: string;
  readonly secret: string;
  /** The same for every try, so that a receiver knows what it has seen. */
  readonly id: string;
  readonly body: string;
}

export type Posted =
  | { readonly taken: true }
  | {
      readonly taken: false;
      readonly failure: string;
      /** As long as the receiver asks to wait. */
      readonly waitMs: number;
      /** The receiver wants nothing more. */
      readonly isGone: boolean;
    };

export const newWebhookSecret = (): string => `whsec_${randomBytes(24).toString('base64')}`;

/** The pause after so many tries in a row that failed. */
export const pauseAfter = (failures: number, waitMs = 0): number =>
  Math.min(longestPauseMs, Math.max(waitMs, 1000 * 4 ** failures));

/**
 * Posts to programs, signed as Standard Webhooks has it. Who receives is what an administrator wrote: a redirect is not followed, and
 * nothing of an answer but its status is looked at.
 */
export class WebhookSender {
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
  }

  async post({ url, secret, id, body }: Post, signal?: AbortSignal): Promise<Posted> {
    const timestamp = Math.floor(this.#now() / 1000);
    const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
    const signature = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64');
    const timeout = AbortSignal.timeout(answerMs);
    try {
      const answer = await fetch(url, {
        method: 'POST',
        redirect: 'error',
        signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
        headers: {
          'content-type': 'application/json',
          'webhook-id': id,
          'webhook-timestamp': String(timestamp),
          'webhook-signature': `v1,${signature}`,
        },
        body,
      });
      await answer.body?.cancel();
      if (answer.ok) return { taken: true };
      return {
        taken: false,
        failure: `it answered ${answer.status}`,
        waitMs: this.#waitOf(answer.headers.get('retry-after')),
        isGone: answer.status === 410,
      };
    } catch (error) {
      return { taken: false, failure: String((error as Error).cause ?? error), waitMs: 0, isGone: false };
    }
  }

  /** Seconds, or a date. */
  #waitOf(text: string | null): number {
    if (text === null) return 0;
    const ms = /^\d{1,9}$/.test(text.trim()) ? Number(text) * 1000 : Date.parse(text) - this.#now();
    return Number.isFinite(ms) ? Math.max(0, Math.min(ms, longestPauseMs)) : 0;
  }
}
