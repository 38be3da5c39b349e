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

/** What became of a try: undefined as failure where it was taken. */
interface Outcome {
  readonly failure: string | undefined;
  readonly waitMs: number;
}

/** What comes of some work, or undefined once nobody waits for it any more. */
const untilAborted = async <T>(work: Promise<T>, signal: AbortSignal): Promise<T | undefined> => {
  const { promise: aborted, resolve } = Promise.withResolvers<undefined>();
  const stop = () => resolve(undefined);
  signal.addEventListener('abort', stop);
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
};

/** For the log: the rest of a URL is often what lets a caller in. */
const withoutPath = (url: string): string => (url.startsWith(mailTo) ? url : new URL(url).origin);

/**
 * News of projects: posted to programs, signed as Standard Webhooks has it, or mailed to people. Each is sent until it is taken or
 * given up. Targets do not wait for each other: one that never answers holds up its own news alone.
 */
export class Notifier {
  readonly #store: ProjectStore;
  readonly #log: Log;
  readonly #now: () => number;
  readonly #sender: WebhookSender;
  readonly #mailer: Mailer | undefined;
  readonly #ending = new AbortController();
  /** By target. */
  readonly #sending = new Map<string, Promise<void>>();

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
    this.#store.transaction(() => {
      if (this.#store.webhooks.delete({ url }) === 0)
        throw new CoppiceError('not_found', `no news go to ${url}`, {
          hint: 'List: coppice project news ls',
        });
      this.#store.notifications.update(
        { url, state: 'waiting' },
        { state: 'given-up', failure: 'nobody wants it any more' },
      );
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

  /** Begins to send what is due, to every target that is not busy. */
  send(): void {
    if (this.#ending.signal.aborted) return;
    for (const target of this.#store.webhooks.all()) {
      if (this.#sending.has(target.url)) continue;
      const sent = this.#sendTo(target)
        .catch((error: unknown) => this.#log.warn({ err: error }, 'sending news failed'))
        .finally(() => this.#sending.delete(target.url));
      this.#sending.set(target.url, sent);
    }
  }

  /** Waits for no target: what was under way is sent by the next daemon. */
  async close(): Promise<void> {
    this.#ending.abort();
    await Promise.all(this.#sending.values());
  }

  async #sendTo(target: WebhookRecord): Promise<void> {
    const { url } = target;
    const { signal } = this.#ending;
    for (const waiting of this.#store.notificationsDue(url, this.#now())) {
      const delivery = url.startsWith(mailTo) ? this.#mail(waiting) : this.#post(target, waiting);
      const outcome = await untilAborted(delivery, signal);
      if (outcome === undefined || signal.aborted) return;
      this.#settle(waiting, outcome);
      // It is tried again later, and whatever else waits for it too.
      if (outcome.failure !== undefined) return;
    }
  }

  #settle({ id, url, attempts: before }: NotificationRecord, { failure, waitMs }: Outcome): void {
    const attempts = before + 1;
    const told = failure?.replaceAll(url, withoutPath(url)) ?? null;
    if (told !== null)
      this.#log.warn({ target: withoutPath(url), failure: told }, 'news of a project were not taken');
    const changes =
      told === null
        ? { state: 'sent' as const }
        : {
            state: attempts >= giveUpAfter ? ('given-up' as const) : ('waiting' as const),
            nextMs: this.#now() + pauseAfter(attempts, waitMs),
          };
    // Unless the target was removed meanwhile.
    this.#store.notifications.update({ id, state: 'waiting' }, { ...changes, attempts, failure: told });
  }

  async #mail({ messageId, url, event, projectId, body }: NotificationRecord): Promise<Outcome> {
    if (this.#mailer === undefined) return { failure: 'no mail server is configured', waitMs: 0 };
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
      return { failure: undefined, waitMs: 0 };
    } catch (error) {
      return { failure: String((error as Error).message), waitMs: 0 };
    }
  }

  async #post({ url, secret }: WebhookRecord, { messageId: id, body }: NotificationRecord): Promise<Outcome> {
    const posted = await this.#sender.post({ url, secret, id, body }, this.#ending.signal);
    return posted.taken ? { failure: undefined, waitMs: 0 } : posted;
  }
}
