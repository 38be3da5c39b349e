import { randomBytes } from 'node:crypto';
import type { NotificationRecord, ProjectStore, WebhookRecord } from '@coppice/projects';
import { CoppiceError } from '@coppice/protocol';
import type { Log } from '../host/log.ts';
import { newWebhookSecret, pauseAfter, type WebhookSender } from '../host/webhook-sender.ts';
import type { Mailer } from './mailer.ts';
import { at } from './views.ts';

const giveUpAfter = 8;

export type News =
  | 'project.ended'
  | 'project.forgotten'
  | 'project.promoted'
  | 'experiment.done'
  | 'agent.rolled_back'
  | 'agent.live';

const mailTo = 'mailto:';

/** News of projects: posted to programs, signed as Standard Webhooks has it, or mailed to people. Each is sent until it is taken or given up. */
export class Notifier {
  readonly #store: ProjectStore;
  readonly #log: Log;
  readonly #now: () => number;
  readonly #sender: WebhookSender;
  readonly #mailer: Mailer | undefined;

  constructor(
    store: ProjectStore,
    log: Log,
    now: () => number,
    sender: WebhookSender,
    mailer: Mailer | undefined,
  ) {
    this.#store = store;
    this.#log = log;
    this.#now = now;
    this.#sender = sender;
    this.#mailer = mailer;
  }

  list() {
    return this.#store.webhooks
      .all({}, 'ORDER BY created_ms')
      .map(({ url, createdMs }) => ({ url, secret: null, created_at: at(createdMs) }));
  }

  add(url: string, given: string | undefined) {
    const isMail = url.startsWith(mailTo);
    if (isMail && this.#mailer === undefined)
      throw new CoppiceError('unsupported', 'no mail server is configured', {
        hint: 'Set `mail` with its `host` and `from` in config.json, and start the daemon again.',
      });
    if (isMail && given !== undefined)
      throw new CoppiceError('invalid_argument', 'mail is not signed: a secret is for URLs');
    const secret = isMail ? '' : (given ?? newWebhookSecret());
    const createdMs = this.#now();
    if (!this.#store.webhooks.insert({ url, secret, createdMs }, true).isNew)
      throw new CoppiceError('name_taken', `news go to ${url} already`, {
        hint: 'Remove it first: coppice project news rm URL',
      });
    return { url, secret: isMail ? null : secret, created_at: at(createdMs) };
  }

  remove(url: string): void {
    if (this.#store.webhooks.delete({ url }) === 0)
      throw new CoppiceError('not_found', `no news go to ${url}`, {
        hint: 'List: coppice project news ls',
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
      const target = this.#store.webhooks.one({ url: waiting.url });
      if (target === undefined) {
        this.#store.notifications.update(
          { id: waiting.id },
          { state: 'given-up', failure: 'nobody wants it any more' },
        );
        continue;
      }
      const { failure, waitMs } = target.url.startsWith(mailTo)
        ? { failure: await this.#mail(waiting), waitMs: 0 }
        : await this.#post(target, waiting);
      const attempts = waiting.attempts + 1;
      const changes =
        failure === undefined
          ? { state: 'sent' as const }
          : {
              state: attempts >= giveUpAfter ? ('given-up' as const) : ('waiting' as const),
              nextMs: this.#now() + pauseAfter(attempts, waitMs),
            };
      if (failure !== undefined)
        this.#log.warn({ url: target.url, failure }, 'news of a project were not taken');
      this.#store.notifications.update(
        { id: waiting.id },
        { ...changes, attempts, failure: failure ?? null },
      );
    }
  }

  async #mail({ messageId, url, event, projectId, body }: NotificationRecord): Promise<string | undefined> {
    if (this.#mailer === undefined) return 'no mail server is configured';
    const { timestamp, data } = JSON.parse(body) as { timestamp: string; data: Record<string, unknown> };
    const lines = Object.entries(data).map(
      ([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`,
    );
    try {
      await this.#mailer.send({
        id: messageId,
        to: url.slice(mailTo.length),
        subject: `${event} ${projectId}`,
        text: [`${event} at ${timestamp}`, '', ...lines, '', `coppice project show ${projectId}`, ''].join(
          '\n',
        ),
      });
      return undefined;
    } catch (error) {
      return String((error as Error).message);
    }
  }

  async #post(
    { url, secret }: WebhookRecord,
    { messageId: id, body }: NotificationRecord,
  ): Promise<{ failure: string | undefined; waitMs: number }> {
    const posted = await this.#sender.post({ url, secret, id, body });
    return posted.taken ? { failure: undefined, waitMs: 0 } : posted;
  }
}
