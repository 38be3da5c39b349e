import { CoppiceError, type IdSource, type TellRun } from '@coppice/protocol';
import type { RunMessageRecord } from '../db/run-message-table.ts';
import type { State } from '../db/state.ts';
import type { RunEntry, RunLog } from './run-log.ts';

const mostWaiting = 1000;

export interface InboxParts {
  readonly state: State;
  readonly log: RunLog;
  readonly ids: IdSource;
  readonly now: () => number;
}

/** Messages to a run, each in the state that is proven: accepted, sent, delivered, expired. None goes back. */
export class Inbox {
  readonly #parts: InboxParts;

  constructor(parts: InboxParts) {
    this.#parts = parts;
  }

  accept(
    runId: string,
    { key = null, from, expires_in_s, ...input }: TellRun | (Omit<TellRun, 'key'> & { key?: string | null }),
  ): RunMessageRecord {
    const { state, log, ids, now } = this.#parts;
    const known = key === null ? undefined : state.runMessages.byKey(runId, key);
    if (known !== undefined) return known;
    return log.commit(runId, (entry) => {
      if (state.runMessages.inState(runId, 'accepted').length >= mostWaiting)
        throw new CoppiceError(
          'limit_reached',
          `${mostWaiting} messages to run ${entry.run.name} wait already`,
          {
            hint: `Look at them (\`coppice agent show ${entry.run.name}\`), and at whether the agent works.`,
          },
        );
      const acceptedAtMs = now();
      const message = state.runMessages.insert({
        ...input,
        id: ids.next('message'),
        runId,
        key,
        sender: from,
        state: 'accepted',
        via: null,
        note: null,
        acceptedAtMs,
        sentAtMs: null,
        deliveredAtMs: null,
        expiresAtMs: expires_in_s === undefined ? null : acceptedAtMs + expires_in_s * 1000,
      });
      entry.emit('message.accepted', 'user', {
        message_id: message.id,
        kind: message.kind,
        urgency: message.urgency,
        from,
        text: message.text,
      });
      return message;
    });
  }

  /** In the transaction of who has it on its way: nothing is given to the agent before this is written down. */
  onItsWay(entry: RunEntry, id: string, via: 'steer' | 'prompt'): void {
    this.#of(entry, id);
    this.#parts.state.runMessages.update(id, { via });
  }

  sent(entry: RunEntry, id: string, via: string): void {
    const message = this.#find(entry, id);
    if (message?.state !== 'accepted') return;
    this.#parts.state.runMessages.update(id, { state: 'sent', via, sentAtMs: this.#parts.now() });
    entry.emit('message.sent', 'daemon', { message_id: id, via });
  }

  /** The agent did not take it into its turn: it waits for the end of that. */
  held(entry: RunEntry, id: string): void {
    if (isOpen(this.#find(entry, id))) this.#parts.state.runMessages.update(id, { via: 'held' });
  }

  /** The turn ended without these: they wait again. */
  release(entry: RunEntry, ...ways: readonly ('steer' | 'prompt' | 'held')[]): void {
    for (const { id, via } of this.open(entry.run.id))
      if (ways.some((way) => way === via)) this.#parts.state.runMessages.update(id, { via: null });
  }

  /** What the agent was given in these ways is in its session, or lost: its next request to a model tells. */
  doubt(entry: RunEntry, ...ways: readonly ('steer' | 'prompt' | 'held' | 'doubt')[]): void {
    for (const { id, via } of this.open(entry.run.id))
      if (ways.some((way) => way === via)) this.#parts.state.runMessages.update(id, { via: 'doubt' });
  }

  /** What a request to a model carried: those are delivered, and what was in doubt is not in doubt any more. */
  settle(entry: RunEntry, seen: readonly string[]): void {
    for (const { id, via } of this.open(entry.run.id)) {
      if (seen.includes(id)) this.delivered(entry, id, via === 'steer' ? via : 'prompt', 'gateway');
      else if (via === 'doubt') this.#parts.state.runMessages.update(id, { via: null });
    }
  }

  delivered(entry: RunEntry, id: string, via: string, source: 'gateway' | 'agent'): void {
    const message = this.#of(entry, id);
    if (message.state === 'delivered' || message.state === 'expired') return;
    const atMs = this.#parts.now();
    if (message.state === 'accepted') this.sent(entry, id, via);
    this.#parts.state.runMessages.update(id, { state: 'delivered', deliveredAtMs: atMs });
    const latency_ms = atMs - message.acceptedAtMs;
    entry.emit('message.delivered', source, { message_id: id, via, latency_ms });
    entry.emit('agent.message_injected', source, { message_id: id, via, latency_ms });
  }

  expire(entry: RunEntry, id: string, note: string): void {
    const message = this.#of(entry, id);
    if (message.state === 'delivered' || message.state === 'expired') return;
    this.#parts.state.runMessages.update(id, { state: 'expired', note });
    entry.emit('message.expired', 'daemon', { message_id: id, note });
  }

  /** Those whose time is over, and all of them where the run has ended. */
  expireOld(entry: RunEntry, hasEnded: boolean): void {
    const nowMs = this.#parts.now();
    for (const message of this.#parts.state.runMessages.inState(entry.run.id, 'accepted')) {
      if (hasEnded) this.expire(entry, message.id, 'the run ended');
      else if (
        (message.via === null || message.via === 'held') &&
        message.expiresAtMs !== null &&
        message.expiresAtMs <= nowMs
      )
        this.expire(entry, message.id, 'its time was over');
    }
  }

  /** Those that have not reached the agent's model: the highest priority first, then the oldest. */
  open(runId: string): RunMessageRecord[] {
    const { runMessages } = this.#parts.state;
    return [...runMessages.inState(runId, 'accepted'), ...runMessages.inState(runId, 'sent')].sort(
      (a, b) => b.priority - a.priority || a.number - b.number,
    );
  }

  /** Those of them that nothing is under way for. */
  waiting(runId: string): RunMessageRecord[] {
    return this.open(runId).filter(({ via }) => via === null);
  }

  /** An agent may name any id. */
  #find(entry: RunEntry, id: string): RunMessageRecord | undefined {
    const message = this.#parts.state.runMessages.byId(id);
    return message?.runId === entry.run.id ? message : undefined;
  }

  #of(entry: RunEntry, id: string): RunMessageRecord {
    const message = this.#find(entry, id);
    if (message === undefined)
      throw new CoppiceError('not_found', `run ${entry.run.name} has no message ${id}`);
    return message;
  }
}

const isOpen = (message: RunMessageRecord | undefined): boolean =>
  message?.state === 'accepted' || message?.state === 'sent';
