import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError, type Event } from '@coppice/protocol';
import type { Intent } from '../db/intent-table.ts';
import type { State } from '../db/state.ts';
import type { HoldPoint, KillPoint, ProjectKillPoint } from './kill-points.ts';

const holdPollMs = 5;

export type Emit = (type: string, sandboxId: string | null, data?: Readonly<Record<string, unknown>>) => void;

export interface JournalOptions {
  readonly now: () => number;
  /** For tests, asked at each step: lines with the kill point at which this process dies, or `hold` and where it waits. */
  readonly faults?: (() => string | undefined) | undefined;
}

/**
 * Intent first, then the effects, then the new state with its event in one transaction that also clears the intent.
 * So each crash leaves either nothing, an intent that recovery settles, or the finished work.
 */
export class Journal {
  readonly #state: State;
  readonly #now: () => number;
  readonly #faults: (() => string | undefined) | undefined;
  readonly #listeners = new Set<(events: readonly Event[]) => void>();

  constructor(state: State, options: JournalOptions) {
    this.#state = state;
    this.#now = options.now;
    this.#faults = options.faults;
  }

  begin(sandboxId: string, intent: Intent, also: (emit: Emit) => void = () => {}): void {
    this.commit((emit) => {
      this.#assertSettled(sandboxId, intent);
      this.#state.intents.set(sandboxId, intent);
      also(emit);
    });
  }

  /** The new state and its events; ends the intent of the sandbox. */
  finish<T>(sandboxId: string, work: (emit: Emit) => T): T {
    return this.commit((emit) => {
      this.#state.intents.clear(sandboxId);
      return work(emit);
    });
  }

  commit<T>(work: (emit: Emit) => T): T {
    const events: Event[] = [];
    const result = this.#state.transaction(() => {
      // It may be a second try.
      events.length = 0;
      return work((type, sandboxId, data = {}) => {
        events.push(this.#state.events.append(this.#now(), type, sandboxId, data));
      });
    });
    if (events.length > 0) for (const listener of this.#listeners) listener(events);
    return result;
  }

  /** Called with the events of each transaction once it is committed, in order. */
  onCommitted(listener: (events: readonly Event[]) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * One that a call had to leave behind is settled by who made it leave, or by the next daemon: nobody else may forget it.
   * What a call copied ahead so that it can be undone becomes part of the call.
   */
  #assertSettled(sandboxId: string, next: Intent): void {
    const left = this.#state.intents.of(sandboxId);
    if (left === undefined || left.kind === next.kind || next.kind === 'destroy') return;
    if (left.kind === 'snapshot' && 'undoSnapshotId' in next && next.undoSnapshotId === left.snapshotId)
      return;
    throw new CoppiceError(
      'unavailable',
      `a ${left.kind} of the sandbox was given up and is still to be settled`,
    );
  }

  step(point: KillPoint | ProjectKillPoint): void {
    if (this.#isAsked(point)) process.kill(process.pid, 'SIGKILL');
  }

  async hold(point: HoldPoint, signal?: AbortSignal): Promise<void> {
    while (this.#isAsked(`hold ${point}`)) {
      signal?.throwIfAborted();
      await sleep(holdPollMs);
    }
  }

  #isAsked(line: string): boolean {
    return this.#faults?.()?.split('\n').includes(line) ?? false;
  }
}
