import { createHash } from 'node:crypto';
import {
  bodyFields,
  CoppiceError,
  type EventBody,
  type EventDraft,
  hasEnded,
  inlineBytes,
  type RunEvent,
  type RunEventSource,
  type RunEventType,
  type RunOutcome,
  type RunState,
  runSuccessors,
} from '@coppice/protocol';
import type { RunRecord } from '../db/run-table.ts';
import type { State } from '../db/state.ts';
import type { Journal } from '../journal/journal.ts';

const pageSize = 500;
/** How much of one text is kept at all. */
const bodyBytes = 4 * 1024 * 1024;

/** One change of a run, in one transaction: its events, its new fields, its transition. */
export interface RunEntry {
  readonly run: RunRecord;
  emit<T extends RunEventType>(type: T, source: RunEventSource, data: EventDraft<T>): number;
  update(changes: Partial<Omit<RunRecord, 'id' | 'state' | 'lastSeq'>>): void;
  transition(to: RunState, reason: string, outcome?: RunOutcome): void;
}

/** `agent.*` and the like, or a type. */
const isAmong = (type: string, wanted: readonly string[] | undefined): boolean =>
  wanted === undefined ||
  wanted.some((pattern) =>
    pattern.endsWith('.*') ? type.startsWith(pattern.slice(0, -1)) : type === pattern,
  );

/** The record of runs: every event gets the next number of its run, in the transaction that changes the run. */
export class RunLog {
  readonly #state: State;
  readonly #journal: Journal;
  readonly #now: () => number;
  readonly #listeners = new Map<string, Set<() => void>>();
  readonly #observers = new Set<(runId: string) => void>();

  constructor({ state, journal, now }: { state: State; journal: Journal; now: () => number }) {
    this.#state = state;
    this.#journal = journal;
    this.#now = now;
  }

  /** A new run, with the first of its events. */
  create(record: RunRecord): void {
    const { id, name, state: to, reason, sandboxId } = record;
    this.#journal.commit((emitOfDaemon) => {
      const atMs = this.#now();
      this.#state.runs.insert({ ...record, lastSeq: 1 });
      this.#state.runs.addTransition(id, { from: null, to, reason, atMs });
      const data = { from: null, to, reason, outcome: null };
      this.#state.runEvents.append(id, { seq: 1, atMs, type: 'run.state', source: 'user', turn: 0, data });
      emitOfDaemon('run.state', sandboxId, { run: id, name, ...data });
    });
  }

  /** All of it or nothing. */
  commit<T>(runId: string, work: (entry: RunEntry) => T): T {
    const result = this.#journal.commit((emitOfDaemon) => {
      let run = this.get(runId);
      const set = (changes: Partial<Omit<RunRecord, 'id'>>) => {
        this.#state.runs.update(runId, changes);
        run = { ...run, ...changes };
      };
      const emit = (type: RunEventType, source: RunEventSource, data: object): number => {
        const seq = run.lastSeq + 1;
        const turn = run.turn;
        this.#state.runEvents.append(runId, {
          seq,
          atMs: this.#now(),
          type,
          source,
          turn,
          data: this.#withBodies(runId, type, data),
        });
        set({ lastSeq: seq });
        return seq;
      };
      return work({
        get run() {
          return run;
        },
        emit,
        update: set,
        transition: (to, reason, outcome) => {
          const from = run.state;
          if (from === to) return;
          if (!runSuccessors[from].includes(to))
            throw new CoppiceError('internal', `a run cannot go from ${from} to ${to}`);
          const atMs = this.#now();
          this.#state.runs.addTransition(runId, { from, to, reason, atMs });
          set({
            state: to,
            reason,
            outcome: outcome ?? null,
            ...(hasEnded(to) ? { endedAtMs: atMs, working: false } : { endedAtMs: null }),
            ...(to === 'running' && run.startedAtMs === null ? { startedAtMs: atMs } : {}),
          });
          emit('run.state', 'daemon', { from, to, reason, outcome: outcome ?? null });
          emitOfDaemon('run.state', run.sandboxId, { run: runId, name: run.name, from, to, reason, outcome });
        },
      });
    });
    for (const wake of this.#listeners.get(runId) ?? []) wake();
    for (const observe of this.#observers) observe(runId);
    return result;
  }

  /** Of one that is there. */
  get(runId: string): RunRecord {
    const run = this.#state.runs.byId(runId);
    if (run === undefined) throw new CoppiceError('not_found', `there is no run ${runId}`);
    return run;
  }

  /** Called after each commit. */
  onCommitted(observe: (runId: string) => void): () => void {
    this.#observers.add(observe);
    return () => this.#observers.delete(observe);
  }

  list(runId: string, after: number, limit: number, types?: readonly string[]): RunEvent[] {
    const found: RunEvent[] = [];
    for (let at = after; found.length < limit; ) {
      const page = this.#state.runEvents.list(runId, at, pageSize);
      for (const event of page) if (found.length < limit && isAmong(event.type, types)) found.push(event);
      if (page.length < pageSize) break;
      at = page.at(-1)!.seq;
    }
    return found;
  }

  /** From any number on, without a gap and without a repetition: read from the table, where commits only wake the reader. */
  async *follow(
    runId: string,
    after: number,
    types: readonly string[] | undefined,
    signal: AbortSignal,
  ): AsyncGenerator<RunEvent> {
    let at = after;
    let wake: () => void = () => {};
    let news = true;
    const listener = () => {
      news = true;
      wake();
    };
    const listeners = this.#listeners.get(runId) ?? new Set();
    this.#listeners.set(runId, listeners.add(listener));
    const onAbort = () => wake();
    signal.addEventListener('abort', onAbort);
    try {
      while (!signal.aborted) {
        if (!news) {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
          continue;
        }
        news = false;
        // It was removed: there will be nothing more.
        if (this.#state.runs.byId(runId) === undefined) return;
        const page = this.#state.runEvents.list(runId, at, pageSize);
        if (page.length === pageSize) news = true;
        for (const event of page) {
          at = event.seq;
          if (isAmong(event.type, types)) yield event;
          if (signal.aborted) return;
        }
      }
    } finally {
      listeners.delete(listener);
      if (listeners.size === 0) this.#listeners.delete(runId);
      signal.removeEventListener('abort', onAbort);
    }
  }

  /** Wakes those who follow a run that is gone. */
  forget(runId: string): void {
    for (const wake of this.#listeners.get(runId) ?? []) wake();
  }

  /** What is long is kept beside the event, which has its beginning. */
  #withBodies(runId: string, type: RunEventType, data: object): object {
    const fields = bodyFields(type);
    if (fields.length === 0) return data;
    const given = data as Record<string, unknown>;
    return {
      ...given,
      ...Object.fromEntries(fields.map((field) => [field, this.#body(runId, String(given[field] ?? ''))])),
    };
  }

  #body(runId: string, whole: string): EventBody {
    const text = whole.toWellFormed();
    const bytes = Buffer.from(text);
    if (bytes.length <= inlineBytes) return { text, bytes: bytes.length, ref: null };
    const kept = bytes.subarray(0, bodyBytes);
    const ref = createHash('sha256').update(kept).digest('hex');
    this.#state.runEvents.addBody(runId, ref, kept);
    return {
      text: bytes
        .subarray(0, inlineBytes)
        .toString()
        .replace(/\ufffd$/, ''),
      bytes: bytes.length,
      ref,
    };
  }
}
