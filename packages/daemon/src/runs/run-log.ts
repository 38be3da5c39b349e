import { createHash } from 'node:crypto';
import { setImmediate as turnOfOthers } from 'node:timers/promises';
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
/** What an event takes besides its data, about. */
const rowBytes = 128;
/** One answer holds no more events than take this, and one page at least. */
const answerBytes = 16 * 1024 * 1024;

export interface RunLogParts {
  readonly state: State;
  readonly journal: Journal;
  readonly now: () => number;
  /** What the agent of one run may have on record: it lies in the home, outside of the disk of its sandbox. */
  readonly mostBytes: number;
}

/** One change of a run, in one transaction: its events, its new fields, its transition. */
export interface RunEntry {
  readonly run: RunRecord;
  /** Undefined: the record is full, and what an agent says is not kept any more. */
  emit<T extends RunEventType>(type: T, source: RunEventSource, data: EventDraft<T>): number | undefined;
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
  readonly #mostBytes: number;
  readonly #listeners = new Map<string, Set<() => void>>();
  readonly #observers = new Set<(runId: string) => void>();

  constructor({ state, journal, now, mostBytes }: RunLogParts) {
    this.#state = state;
    this.#journal = journal;
    this.#now = now;
    this.#mostBytes = mostBytes;
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
      const append = (type: RunEventType, source: RunEventSource, data: object): number => {
        const seq = run.lastSeq + 1;
        const { data: kept, bytes } = this.#withBodies(runId, type, data);
        const written = this.#state.runEvents.append(runId, {
          seq,
          atMs: this.#now(),
          type,
          source,
          turn: run.turn,
          data: kept,
        });
        set({ lastSeq: seq, recordBytes: run.recordBytes + bytes + written + rowBytes });
        return seq;
      };
      const emit = (type: RunEventType, source: RunEventSource, data: object): number | undefined => {
        const isRoomLeft = run.recordBytes < this.#mostBytes;
        if (source === 'agent' && !isRoomLeft) return undefined;
        const seq = append(type, source, data);
        if (isRoomLeft && run.recordBytes >= this.#mostBytes)
          append('agent.error', 'daemon', {
            message: `the record of this run is full (${Math.ceil(run.recordBytes / 2 ** 20)} MiB): what its agent says from here on is not kept`,
            fatal: false,
          });
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

  /** All from there on, as they are now. How many there are is for a program inside to decide, so others get a turn after each page. */
  async *pages(runId: string, after: number): AsyncGenerator<readonly RunEvent[]> {
    for (let at = after; ; ) {
      const page = this.#state.runEvents.list(runId, at, pageSize);
      if (page.length === 0) return;
      yield page;
      at = page.at(-1)!.seq;
      await turnOfOthers();
    }
  }

  /** The first of such types; fewer than the limit where they are large. */
  async find(
    runId: string,
    after: number,
    limit: number,
    types: readonly string[] | undefined,
  ): Promise<RunEvent[]> {
    const found: RunEvent[] = [];
    let bytes = 0;
    for await (const page of this.pages(runId, after)) {
      for (const event of page)
        if (found.length < limit && isAmong(event.type, types)) {
          found.push(event);
          bytes += JSON.stringify(event.data).length;
        }
      if (found.length >= limit || bytes >= answerBytes) break;
    }
    return found;
  }

  /** So many of the newest. */
  latest({ id, lastSeq }: RunRecord, count: number): RunEvent[] {
    return this.#state.runEvents.list(id, Math.max(0, lastSeq - count), count);
  }

  last(runId: string, type: RunEventType): RunEvent | undefined {
    return this.#state.runEvents.last(runId, type);
  }

  isFull({ recordBytes }: RunRecord): boolean {
    return recordBytes >= this.#mostBytes;
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
        if (page.length > 0) news = true;
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
  #withBodies(runId: string, type: RunEventType, data: object): { data: object; bytes: number } {
    const given = data as Record<string, unknown>;
    let bytes = 0;
    const bodies = bodyFields(type).map((field) => {
      const { body, beside } = this.#body(runId, String(given[field] ?? ''));
      bytes += beside;
      return [field, body] as const;
    });
    return { data: { ...given, ...Object.fromEntries(bodies) }, bytes };
  }

  #body(runId: string, whole: string): { body: EventBody; beside: number } {
    const text = whole.toWellFormed();
    const bytes = Buffer.from(text);
    if (bytes.length <= inlineBytes) return { body: { text, bytes: bytes.length, ref: null }, beside: 0 };
    const kept = bytes.subarray(0, bodyBytes);
    const ref = createHash('sha256').update(kept).digest('hex');
    const isNew = this.#state.runEvents.addBody(runId, ref, kept);
    const text_ = bytes
      .subarray(0, inlineBytes)
      .toString()
      .replace(/\ufffd$/, '');
    return { body: { text: text_, bytes: bytes.length, ref }, beside: isNew ? kept.length : 0 };
  }
}
