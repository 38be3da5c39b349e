import {
  bodyFields,
  CoppiceError,
  type doneSchema,
  type EventDraft,
  hasEnded,
  type insideEventSchema,
  type RunMessage,
  type RunState,
  runEventTypes,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { State } from '../db/state.ts';
import { RateLimiter } from '../tokens/rate-limiter.ts';
import type { Inbox } from './inbox.ts';
import type { RunLog } from './run-log.ts';

type InsideMessage = Pick<RunMessage, 'id' | 'number' | 'kind' | 'urgency' | 'text' | 'from'>;

export interface InsideServiceParts {
  readonly state: State;
  readonly log: RunLog;
  readonly inbox: Inbox;
  readonly now: () => number;
  /** A tool has done its work, as the program says. */
  readonly onToolResult: (runId: string, tool: string) => void;
}

/** Of one event, besides its texts: they are read whole wherever events are listed. */
const mostPlainBytes = 16_384;

/** For one run, in each second and at once. */
const rates = {
  events: { perSecond: 50, burst: 500 },
  heartbeats: { perSecond: 1, burst: 20 },
  messages: { perSecond: 20, burst: 100 },
} as const;

/**
 * What a program in a sandbox may do with the token of its run: report events, fetch messages, say that it is alive, say that it is done.
 * Which run that is stands in the token; nothing in a call can name another.
 */
export class InsideService {
  readonly #parts: InsideServiceParts;
  readonly #limits = {
    events: new RateLimiter(rates.events),
    heartbeats: new RateLimiter(rates.heartbeats),
    messages: new RateLimiter(rates.messages),
  } as const satisfies Record<keyof typeof rates, RateLimiter>;

  constructor(parts: InsideServiceParts) {
    this.#parts = parts;
  }

  async report(runId: string, { type, data }: z.output<typeof insideEventSchema>): Promise<{ seq: number }> {
    this.#limits.events.take(runId);
    const bodies = bodyFields(type);
    // Texts are given as they are, and cut where they are written down.
    const shaped = Object.fromEntries(
      Object.entries(data).map(([field, value]) =>
        bodies.includes(field) && typeof value === 'string'
          ? [field, { text: value, bytes: 0, ref: null }]
          : [field, value],
      ),
    );
    const parsed = runEventTypes[type].data.strict().safeParse(shaped);
    if (!parsed.success) {
      const { path, message } = parsed.error.issues[0]!;
      throw new CoppiceError('invalid_argument', `${type}: ${['data', ...path].join('.')}: ${message}`);
    }
    const plainBytes = Object.entries(data).reduce(
      (sum, [field, value]) => sum + (bodies.includes(field) ? 0 : JSON.stringify(value).length),
      0,
    );
    if (plainBytes > mostPlainBytes)
      throw new CoppiceError('too_large', `${type}: its fields hold more than ${mostPlainBytes} characters`, {
        hint: 'Report long texts as `agent.message`, and files by their path.',
      });
    const seq = this.#parts.log.commit(runId, ({ emit }) =>
      emit(type, 'agent', data as EventDraft<typeof type>),
    );
    if (seq === undefined)
      throw new CoppiceError('limit_reached', 'the record of this run is full', {
        hint: 'Go on without reporting. An administrator can raise `limits.run_record_mb` in config.json.',
        details: { limit: 'run_record_mb' },
      });
    if (type === 'agent.tool_result') this.#parts.onToolResult(runId, String(data.tool));
    return { seq };
  }

  /** Those up to `after` were seen by the program: they are delivered. Those that are given out now are sent. */
  async messages(
    runId: string,
    { after, wait_s }: { readonly after: number; readonly wait_s: number },
    signal: AbortSignal,
  ): Promise<InsideMessage[]> {
    this.#limits.messages.take(runId);
    this.#refuseWhereAdapterDelivers(runId);
    const deadlineMs = this.#parts.now() + wait_s * 1000;
    for (;;) {
      const found = this.#fetch(runId, after);
      const leftMs = deadlineMs - this.#parts.now();
      if (found.length > 0 || leftMs <= 0 || signal.aborted || hasEnded(this.#parts.log.get(runId).state))
        return found;
      await this.#change(runId, leftMs, signal);
    }
  }

  /** A program beside such an agent could claim messages that the agent has not seen. */
  #refuseWhereAdapterDelivers(runId: string): void {
    const { adapter, spec } = this.#parts.log.get(runId);
    if (adapter === 'command') return;
    throw new CoppiceError(
      'wrong_state',
      `messages of this run reach ${spec.agent} through its own protocol`,
      {
        hint: 'Only programs that run as the agent `command` fetch their messages.',
      },
    );
  }

  #fetch(runId: string, after: number): InsideMessage[] {
    const { state, log, inbox } = this.#parts;
    const all = state.runMessages.of(runId);
    const seen = all.filter(
      ({ number, state: at }) => number <= after && (at === 'accepted' || at === 'sent'),
    );
    const fresh = all.filter(
      ({ number, state: at }) => number > after && (at === 'accepted' || at === 'sent'),
    );
    const late = all.some(
      ({ state: at, expiresAtMs }) =>
        at === 'accepted' && expiresAtMs !== null && expiresAtMs <= this.#parts.now(),
    );
    if (seen.length > 0 || late || fresh.some(({ state: at }) => at === 'accepted'))
      log.commit(runId, (entry) => {
        inbox.expireOld(entry, false);
        for (const { id } of seen) inbox.delivered(entry, id, 'inbox', 'agent');
        for (const { id } of fresh)
          if (state.runMessages.byId(id)!.state === 'accepted') inbox.sent(entry, id, 'inbox');
      });
    return fresh
      .filter(({ id }) => state.runMessages.byId(id)!.state === 'sent')
      .sort((a, b) => a.number - b.number)
      .map(({ id, number, kind, urgency, text, sender }) => ({
        id,
        number,
        kind,
        urgency,
        text,
        from: sender,
      }));
  }

  async heartbeat(
    runId: string,
    status: string,
  ): Promise<{ state: RunState; stop: boolean; messages: number }> {
    const { state, log } = this.#parts;
    this.#limits.heartbeats.take(runId);
    const run = log.get(runId);
    log.commit(runId, ({ emit }) =>
      emit('agent.heartbeat', 'agent', {
        alive: true,
        ping_ms: null,
        open_model_calls: 0,
        last_event_age_ms: 0,
        status,
      }),
    );
    return {
      state: run.state,
      stop: hasEnded(run.state),
      messages: state.runMessages.inState(runId, 'accepted').length,
    };
  }

  async done(runId: string, { success, text }: z.output<typeof doneSchema>): Promise<void> {
    this.#limits.heartbeats.take(runId);
    this.#parts.log.commit(runId, ({ run, update }) => {
      if (hasEnded(run.state))
        throw new CoppiceError('wrong_state', `run ${run.name} is ${run.state} already`);
      const reason = success ? 'the agent said that it is done' : 'the agent said that it failed';
      update({ result: { outcome: success ? 'succeeded' : 'failed', reason, text, exit_code: null } });
    });
  }

  #change(runId: string, timeoutMs: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        forget();
        signal.removeEventListener('abort', end);
        resolve();
      };
      const timer = setTimeout(end, timeoutMs);
      const forget = this.#parts.log.onCommitted((id) => {
        if (id === runId) end();
      });
      signal.addEventListener('abort', end);
    });
  }
}
