import type { Outgoing } from '@coppice/agents';
import type { RunMessageRecord } from '../db/run-message-table.ts';
import type { RunRecord } from '../db/run-table.ts';
import type { AgentLink } from './agent-link.ts';
import type { Inbox } from './inbox.ts';
import type { RunLog } from './run-log.ts';

export interface DeliveryParts {
  readonly link: AgentLink;
  readonly log: RunLog;
  readonly inbox: Inbox;
  readonly now: () => number;
  /** Settles when all that the gateway saw until now is known here. */
  readonly gatewayHeard: (signal: AbortSignal) => Promise<void>;
  /** Ends the agent's process: the last resort against a turn that does not end. */
  readonly kill: (run: RunRecord) => Promise<void>;
}

/** A message that is to be there now has so long before the turn is interrupted for it. */
const patienceMs = 700;
/** After an interrupt, until the tools are ended although the turn goes on, and until the agent is. */
const toolsMs = 1000;
const agentMs = 6000;
const killSignal = 9;

const goOn =
  'You were stopped and started again. Look at what is done already, and go on with your task from there.';

const lookAbove = 'Your turn was interrupted for the last message that you got. Go on with that.';

export type Next = { readonly lookAtMs: number | undefined; readonly isDone: boolean };

/**
 * Takes messages to an agent, by their urgency: `queue` when its turn has ended, `steer` into the turn where the agent has a way for
 * that, `now` the same and by an interrupt where it takes too long. A message is delivered when the gateway saw it in a request to a model.
 */
export class Delivery {
  readonly #parts: DeliveryParts;

  constructor(parts: DeliveryParts) {
    this.#parts = parts;
  }

  /** Does what is to be done now; says when to look again, and whether the agent has nothing more to do. */
  async next(run: RunRecord, signal: AbortSignal): Promise<Next> {
    const { link, log, inbox } = this.#parts;
    if (inbox.open(run.id).some((message) => this.#isLate(message)))
      log.commit(run.id, (entry) => inbox.expireOld(entry, false));
    if (link.adapter.fetchesMessages) return { lookAtMs: this.#expiry(run), isDone: false };
    if (link.talk.interruption !== null) return this.#interrupted(run, signal);
    if (!link.talk.isReady) return { lookAtMs: undefined, isDone: false };
    return run.working ? this.#during(run) : this.#between(run, signal);
  }

  /** Ends the turn that is under way, and every process that the agent started in it. */
  interrupt(reason: string): void {
    const { link, now } = this.#parts;
    if (link.talk.interruption !== null) return;
    link.apply(() => link.adapter.interrupt(), { interruption: { atMs: now(), reason, swept: null } });
  }

  /** The turn ends, or is ended. What it left running ends too. */
  async #interrupted(run: RunRecord, signal: AbortSignal): Promise<Next> {
    const { link, now } = this.#parts;
    const interruption = link.talk.interruption!;
    const { atMs, swept, reason } = interruption;
    if (run.working) {
      const waitedMs = now() - atMs;
      if (waitedMs >= agentMs) {
        await this.#parts.kill(run);
        link.apply(
          ({ emit }) => {
            emit('agent.interrupted', 'daemon', { reason, ended_processes: swept ?? 0 });
            return {};
          },
          { interruption: null },
        );
        return { lookAtMs: undefined, isDone: false };
      }
      if (waitedMs < toolsMs || swept !== null)
        return { lookAtMs: atMs + (swept === null ? toolsMs : agentMs), isDone: false };
      const ended = await link.sweep(run, killSignal);
      link.apply(() => ({}), { interruption: { ...interruption, swept: ended.length } });
      return { lookAtMs: atMs + agentMs, isDone: false };
    }
    const ended = await link.sweep(run, killSignal);
    await this.#parts.gatewayHeard(signal);
    link.apply(
      (entry) => {
        const { inbox } = this.#parts;
        inbox.release(entry, 'held', ...(link.adapter.keepsSteered ? [] : ['steer' as const]));
        inbox.doubt(entry, 'prompt', 'steer');
        const ended_processes = ended.length + (swept ?? 0);
        entry.emit('agent.interrupted', 'daemon', { reason, ended_processes });
        return {};
      },
      { interruption: null, stopReason: 'cancelled' },
    );
    return { lookAtMs: now(), isDone: false };
  }

  #during(run: RunRecord): Next {
    const { inbox, now } = this.#parts;
    for (const message of inbox.waiting(run.id)) {
      if (message.kind === 'interrupt') {
        this.interrupt(`message ${message.number}`);
        return { lookAtMs: now() + toolsMs, isDone: false };
      }
      if (message.urgency === 'queue') continue;
      if (this.#steer(message)) return { lookAtMs: now(), isDone: false };
    }
    const urgent = inbox.open(run.id).filter(({ urgency, via }) => urgency === 'now' && via !== 'prompt');
    const dueMs = urgent.map(({ acceptedAtMs, via }) => (via === 'held' ? 0 : acceptedAtMs + patienceMs));
    const first = Math.min(...dueMs);
    if (first <= now()) {
      this.interrupt(`message ${urgent[dueMs.indexOf(first)]!.number} is urgent`);
      return { lookAtMs: now() + toolsMs, isDone: false };
    }
    const wakeMs = Math.min(first, this.#expiry(run) ?? Number.POSITIVE_INFINITY);
    return { lookAtMs: Number.isFinite(wakeMs) ? wakeMs : undefined, isDone: false };
  }

  /** False: nothing was sent, now or at all in this turn. */
  #steer(message: RunMessageRecord): boolean {
    const { link, inbox } = this.#parts;
    let isSent = false;
    link.apply((entry) => {
      const reaction =
        link.adapter.steering === 'none' ? { refused: [message.id] } : link.adapter.steer(message);
      isSent = reaction?.input !== undefined;
      if (isSent) inbox.onItsWay(entry, message.id, 'steer');
      return reaction ?? {};
    });
    return isSent;
  }

  async #between(run: RunRecord, signal: AbortSignal): Promise<Next> {
    const { link, inbox, log } = this.#parts;
    const { wasPrompted, resumed, stopReason } = link.talk;
    if (!wasPrompted) {
      const waiting = inbox.waiting(run.id);
      const first = resumed ? goOn : run.spec.task;
      const isTold = resumed && waiting.length > 0;
      await this.#prompt(run, isTold ? [] : [{ id: null, text: first }], waiting);
      return { lookAtMs: undefined, isDone: false };
    }
    if (stopReason === 'error') return { lookAtMs: undefined, isDone: true };
    const open = inbox.open(run.id);
    if (stopReason === 'cancelled' && open.some(({ via }) => via === 'doubt')) {
      await this.#prompt(run, [{ id: null, text: lookAbove }], inbox.waiting(run.id));
      return { lookAtMs: undefined, isDone: false };
    }
    if (open.some(({ via }) => via !== null)) {
      await this.#parts.gatewayHeard(signal);
      log.commit(run.id, (entry) => {
        inbox.settle(entry, []);
        inbox.release(entry, 'steer', 'held');
      });
    }
    const waiting = inbox.waiting(run.id);
    if (waiting.length > 0) await this.#prompt(run, [], waiting);
    // Somebody stopped it, and will say how to go on.
    return { lookAtMs: this.#expiry(run), isDone: waiting.length === 0 && stopReason !== 'cancelled' };
  }

  async #prompt(
    run: RunRecord,
    before: readonly Outgoing[],
    messages: readonly RunMessageRecord[],
  ): Promise<void> {
    const { link, inbox } = this.#parts;
    // What runs now is the agent, or what a turn before left on purpose. After an interrupt nothing new does.
    const spared = link.talk.spared ?? (await link.sweep(run, 0));
    link.apply(
      (entry) => {
        entry.update({ working: true, turn: run.turn + 1 });
        entry.emit('agent.turn_started', 'daemon', { turn: run.turn + 1 });
        for (const { id } of messages) {
          inbox.onItsWay(entry, id, 'prompt');
          inbox.sent(entry, id, 'prompt');
        }
        return link.adapter.prompt([...before, ...messages.map(({ id, text }) => ({ id, text }))]);
      },
      { wasPrompted: true, stopReason: null, error: null, spared },
    );
  }

  #isLate({ state, via, expiresAtMs }: RunMessageRecord): boolean {
    const isHere = state === 'accepted' && (via === null || via === 'held');
    return isHere && expiresAtMs !== null && expiresAtMs <= this.#parts.now();
  }

  /** When the next message expires. */
  #expiry(run: RunRecord): number | undefined {
    const times = this.#parts.inbox
      .open(run.id)
      .flatMap(({ state, via, expiresAtMs }) =>
        state === 'accepted' && (via === null || via === 'held') && expiresAtMs !== null ? [expiresAtMs] : [],
      );
    return times.length === 0 ? undefined : Math.min(...times);
  }
}
