import { createHmac, randomBytes } from 'node:crypto';
import type { ProjectStore } from '@coppice/projects';
import { CoppiceError } from '@coppice/protocol';
import type { Log } from '../host/log.ts';
import { at } from './views.ts';

const giveUpAfter = 8;
const answerMs = 10_000;

export type News =
  | 'project.ended'
  | 'project.forgotten'
  | 'project.promoted'
  | 'experiment.done'
  | 'agent.rolled_back'
  | 'agent.live';

/** News of projects for other programs: signed as Standard Webhooks has it, each sent until it is taken or given up. */
export class Notifier {
  readonly #store: ProjectStore;
  readonly #log: Log;
  readonly #now: () => number;

  constructor(store: ProjectStore, log: Log, now: () => number) {
    this.#store = store;
    this.#log = log;
    this.#now = now;
  }

  list() {
    return this.#store.webhooks
      .all({}, 'ORDER BY created_ms')
      .map(({ url, createdMs }) => ({ url, secret: null, created_at: at(createdMs) }));
  }

  add(url: string, given: string | undefined) {
    const secret = given ?? `whsec_${randomBytes(24).toString('base64')}`;
    const createdMs = this.#now();
    if (!this.#store.webhooks.insert({ url, secret, createdMs }, true).isNew)
      throw new CoppiceError('name_taken', `news go to ${url} already`, {
        hint: 'Remove it first: coppice project webhook rm URL',
      });
    return { url, secret, created_at: at(createdMs) };
  }

  remove(url: string): void {
    if (this.#store.webhooks.delete({ url }) === 0)
      throw new CoppiceError('not_found', `no news go to ${url}`, {
        hint: 'List: coppice project webhook ls',
      });
  }

  /** In the transaction of what it tells of. */
  tell(event: News, projectId: string, data: Readonly<Record<string, unknown>>): void {
    const nowMs = this.#now();
    const messageId = `msg_${randomBytes(12).toString('hex')}`;
    const body = JSON.stringify({ type: event, timestamp: at(nowMs), data: { project: projectId, ...data } });
    for (const { url } of this.#store.webhooks.all())
      this.#store.notifications.insert({
        messageId,
        url,
        event,
        projectId,
        body,
        state: 'waiting',
        nextMs: nowMs,
      });
  }

  async send(): Promise<void> {
    for (const waiting of this.#store.notificationsDue(this.#now())) {
      const webhook = this.#store.webhooks.one({ url: waiting.url });
      if (webhook === undefined) {
        this.#store.notifications.update(
          { id: waiting.id },
          { state: 'given-up', failure: 'the webhook is gone' },
        );
        continue;
      }
      const failure = await this.#post(webhook.url, webhook.secret, waiting.messageId, waiting.body);
      const attempts = waiting.attempts + 1;
      const changes =
        failure === undefined
          ? { state: 'sent' as const }
          : {
              state: attempts >= giveUpAfter ? ('given-up' as const) : ('waiting' as const),
              nextMs: this.#now() + 1000 * 4 ** attempts,
            };
      if (failure !== undefined)
        this.#log.warn({ url: webhook.url, failure }, 'news of a project were not taken');
      this.#store.notifications.update(
        { id: waiting.id },
        { ...changes, attempts, failure: failure ?? null },
      );
    }
  }

  async #post(url: string, secret: string, id: string, body: string): Promise<string | undefined> {
    const timestamp = Math.floor(this.#now() / 1000);
    const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
    const signature = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64');
    try {
      const answer = await fetch(url, {
        method: 'POST',
        redirect: 'error',
        signal: AbortSignal.timeout(answerMs),
        headers: {
          'content-type': 'application/json',
          'webhook-id': id,
          'webhook-timestamp': String(timestamp),
          'webhook-signature': `v1,${signature}`,
        },
        body,
      });
      await answer.body?.cancel();
      return answer.ok ? undefined : `it answered ${answer.status}`;
    } catch (error) {
      return String((error as Error).cause ?? error);
    }
  }
}
