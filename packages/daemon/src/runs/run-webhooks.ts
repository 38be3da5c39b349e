import {
  type addRunWebhookSchema,
  CoppiceError,
  type IdSource,
  type RunEvent,
  type RunWebhook,
  type resumeRunWebhookSchema,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { RunRecord } from '../db/run-table.ts';
import type { RunWebhookRecord, WebhookCursor } from '../db/run-webhook-table.ts';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import { newWebhookSecret, pauseAfter, type WebhookSender } from '../host/webhook-sender.ts';
import type { Journal } from '../journal/journal.ts';
import type { RunLog } from './run-log.ts';

export interface RunWebhooksParts {
  readonly state: State;
  readonly journal: Journal;
  readonly log: RunLog;
  readonly logger: Log;
  readonly ids: IdSource;
  readonly now: () => number;
  readonly sender: WebhookSender;
  readonly find: (ref: string) => RunRecord;
}

const mostWebhooks = 100;
/** Tries of one event in a row; then a person has to look. They take most of a day. */
const giveUpAfter = 24;
/** How many posts one webhook has under way: one for each run, as a run is told in order. */
const mostAtOnce = 4;
const eventsInTurn = 100;

/**
 * Posts the events of runs to programs: each run in the order of its events, from wherever the receiver has come to. What was taken is
 * written down after each event; a daemon that dies in between posts that one again, under the same id.
 */
export class RunWebhooks {
  readonly #parts: RunWebhooksParts;
  readonly #busy = new Map<string, Promise<void>>();
  readonly #ended = new AbortController();
  #woken = false;

  constructor(parts: RunWebhooksParts) {
    this.#parts = parts;
    parts.log.onCommitted(() => this.#wake());
  }

  /** What is under way is given up; the next daemon sends it again. */
  async close(): Promise<void> {
    this.#ended.abort();
    await Promise.all(this.#busy.values());
  }

  async list(): Promise<RunWebhook[]> {
    return this.#parts.state.runWebhooks.all().map((record) => this.#view(record));
  }

  async add({
    url,
    run: ref,
    types,
    after,
    secret,
  }: z.output<typeof addRunWebhookSchema>): Promise<RunWebhook> {
    const { state, ids, now, find } = this.#parts;
    if (after !== undefined && ref === undefined)
      throw new CoppiceError('invalid_argument', 'a number of an event needs the run that it belongs to', {
        hint: 'Name the run, or leave the number out.',
      });
    if (state.runWebhooks.all().length >= mostWebhooks)
      throw new CoppiceError('limit_reached', `there are ${mostWebhooks} webhooks already`, {
        hint: 'Remove those that nobody needs: coppice agent webhook rm ID',
      });
    const run = ref === undefined ? undefined : find(ref);
    const record: RunWebhookRecord = {
      id: ids.next('webhook'),
      url,
      secret: secret ?? newWebhookSecret(),
      types: types ?? null,
      runId: run?.id ?? null,
      state: 'active',
      failure: null,
      createdAtMs: now(),
    };
    state.transaction(() => {
      state.runWebhooks.insert(record);
      for (const { id, lastSeq } of run === undefined ? state.runs.all() : [run])
        state.runWebhooks.putCursor({
          webhookId: record.id,
          runId: id,
          afterSeq: after ?? lastSeq,
          attempts: 0,
          nextMs: 0,
        });
    });
    this.#wake();
    return { ...this.#view(record), secret: record.secret };
  }

  async resume(id: string, { after }: z.output<typeof resumeRunWebhookSchema>): Promise<RunWebhook> {
    const { state } = this.#parts;
    const { runId } = this.#record(id);
    if (after !== undefined && runId === null)
      throw new CoppiceError('invalid_argument', `${id} is for all runs, which have no numbers in common`, {
        hint: 'Leave the number out, or add a webhook for the one run.',
      });
    state.transaction(() => {
      state.runWebhooks.settle(id);
      state.runWebhooks.hurry(id);
      if (after !== undefined)
        state.runWebhooks.putCursor({
          webhookId: id,
          runId: runId!,
          afterSeq: after,
          attempts: 0,
          nextMs: 0,
        });
    });
    this.#wake();
    return this.#view(this.#record(id));
  }

  async remove(id: string): Promise<void> {
    this.#record(id);
    this.#parts.state.runWebhooks.delete(id);
  }

  /** Posts what is due, also what waited for a pause or for this daemon. */
  look(): void {
    if (this.#ended.signal.aborted) return;
    const underWay = new Map<string, number>();
    for (const key of this.#busy.keys()) underWay.set(idOf(key), (underWay.get(idOf(key)) ?? 0) + 1);
    for (const cursor of this.#parts.state.runWebhooks.due(this.#parts.now())) {
      const key = `${cursor.webhookId} ${cursor.runId}`;
      const count = underWay.get(cursor.webhookId) ?? 0;
      if (this.#busy.has(key) || count >= mostAtOnce) continue;
      underWay.set(cursor.webhookId, count + 1);
      const sending = this.#send(cursor)
        .catch((error: unknown) => {
          if (!this.#ended.signal.aborted)
            this.#parts.logger.error(
              { err: error, webhook: cursor.webhookId },
              'a webhook could not be served',
            );
        })
        .finally(() => {
          this.#busy.delete(key);
          this.#wake();
        });
      this.#busy.set(key, sending);
    }
  }

  /** Once for all that is committed in one go. */
  #wake(): void {
    if (this.#woken || this.#ended.signal.aborted) return;
    this.#woken = true;
    setImmediate(() => {
      this.#woken = false;
      this.look();
    });
  }

  async #send(begin: WebhookCursor): Promise<void> {
    const { state, log, journal, sender, now } = this.#parts;
    const { webhookId, runId } = begin;
    let at = begin;
    for (let n = 0; n < eventsInTurn; n += 1) {
      const webhook = state.runWebhooks.byId(webhookId);
      if (webhook?.state !== 'active' || this.#ended.signal.aborted) return;
      const { lastSeq } = log.get(runId);
      const [event] = await log.find(runId, at.afterSeq, 1, webhook.types?.split(','));
      if (event === undefined) {
        // Nothing of what it wants: it need not be looked through again.
        if (lastSeq > at.afterSeq) this.#keep(at, { ...at, afterSeq: lastSeq });
        return;
      }
      const posted = await sender.post(
        { url: webhook.url, secret: webhook.secret, id: `${runId}.${event.seq}`, body: bodyOf(event) },
        this.#ended.signal,
      );
      if (this.#ended.signal.aborted) return;
      journal.step('webhook.posted');
      if (!posted.taken) {
        const { failure, waitMs, isGone } = posted;
        const attempts = at.attempts + 1;
        this.#parts.logger.warn({ webhook: webhookId, failure }, 'an event of a run was not taken');
        this.#keep(at, { ...at, attempts, nextMs: now() + pauseAfter(attempts, waitMs) }, () =>
          state.runWebhooks.fail(webhookId, failure, isGone || attempts >= giveUpAfter),
        );
        return;
      }
      const next = { ...at, afterSeq: event.seq, attempts: 0, nextMs: 0 };
      const isKept = this.#keep(at, next, () => {
        if (webhook.failure !== null) state.runWebhooks.settle(webhookId);
      });
      if (!isKept) return;
      at = next;
    }
  }

  /** Unless it was removed, or set to another event meanwhile. */
  #keep(before: WebhookCursor, after: WebhookCursor, more: () => void = () => {}): boolean {
    const { runWebhooks } = this.#parts.state;
    return this.#parts.state.transaction(() => {
      if (runWebhooks.place(before.webhookId, before.runId) !== before.afterSeq) return false;
      runWebhooks.putCursor(after);
      more();
      return true;
    });
  }

  #record(id: string): RunWebhookRecord {
    const record = this.#parts.state.runWebhooks.byId(id);
    if (record !== undefined) return record;
    throw new CoppiceError('not_found', `there is no webhook ${id}`, {
      hint: 'List them: coppice agent webhook ls',
    });
  }

  #view({ id, url, runId, types, state, failure, createdAtMs }: RunWebhookRecord): RunWebhook {
    const cursors = this.#parts.state.runWebhooks.cursors(id);
    return {
      id,
      url,
      run_id: runId,
      types,
      state,
      failure,
      waiting: cursors.reduce((sum, { lastSeq, afterSeq }) => sum + lastSeq - afterSeq, 0),
      last_seq: runId === null ? null : (cursors[0]?.afterSeq ?? null),
      secret: null,
      created_at: new Date(createdAtMs).toISOString(),
    };
  }
}

const idOf = (key: string): string => key.split(' ')[0]!;

/** As Standard Webhooks has it. */
const bodyOf = (event: RunEvent): string =>
  JSON.stringify({ type: event.type, timestamp: event.at, data: event });
