import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Event } from '@coppice/protocol';
import type { State } from '../db/state.ts';
import type { Journal } from '../journal/journal.ts';
import type { SandboxFinder } from '../sandboxes/sandbox-finder.ts';

interface EventQuery {
  readonly after: number;
  readonly sandbox?: string | undefined;
  readonly type?: string | undefined;
}

const pageSize = 500;
const dayMs = 24 * 60 * 60 * 1000;

export interface EventBounds {
  readonly kept: number;
  readonly days: number;
}

export class EventService {
  readonly #state: State;
  readonly #journal: Journal;
  readonly #finder: SandboxFinder;

  constructor(state: State, journal: Journal, finder: SandboxFinder) {
    this.#state = state;
    this.#journal = journal;
    this.#finder = finder;
  }

  async list(query: EventQuery & { readonly limit: number }): Promise<{ events: Event[]; last_seq: number }> {
    const lost = this.#lostAfter(query.after);
    const events = this.#state.events.list({
      after: query.after,
      limit: query.limit - lost.length,
      sandboxId: this.#sandboxId(query.sandbox),
      type: query.type,
    });
    return { events: [...lost, ...events], last_seq: this.#state.events.lastSeq() };
  }

  /** The oldest go, a few at a time, so that calls come in between. */
  async prune({ kept, days }: EventBounds, nowMs: number): Promise<void> {
    while (this.#state.events.prune(kept, nowMs - days * dayMs)) await nextTurn();
  }

  /**
   * From any sequence number on, without a gap and without a repetition: always read from the table, where commits only
   * wake the reader. A slow reader costs nothing but its own position.
   */
  async *follow(query: EventQuery, signal: AbortSignal): AsyncGenerator<Event> {
    const sandboxId = this.#sandboxId(query.sandbox);
    let after = query.after;
    let wake: () => void = () => {};
    let news = true;
    const unsubscribe = this.#journal.onCommitted(() => {
      news = true;
      wake();
    });
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
        const lost = this.#lostAfter(after);
        const page = this.#state.events.list({ after, limit: pageSize, sandboxId, type: query.type });
        const isFull = page.length === pageSize;
        const seen = isFull ? page.at(-1)!.seq : Math.max(after, this.#state.events.lastSeq());
        if (isFull) news = true;
        for (const event of [...lost, ...page]) {
          yield event;
          if (signal.aborted) return;
        }
        // Also past those that were of another sandbox or type: when they go, nothing is lost here.
        after = seen;
      }
    } finally {
      unsubscribe();
      signal.removeEventListener('abort', onAbort);
    }
  }

  /** In place of the events after that one which are no longer kept; the first of all are asked for by 0. */
  #lostAfter(after: number): Event[] {
    const oldest = this.#state.events.oldest();
    if (after === 0 || oldest === undefined || oldest.seq <= after + 1) return [];
    const seq = oldest.seq - 1;
    return [
      { seq, at: oldest.at, type: 'events.lost', sandbox_id: null, data: { from: after + 1, to: seq } },
    ];
  }

  /** A sandbox that is gone still has its events, by its id. */
  #sandboxId(ref: string | undefined): string | undefined {
    if (ref === undefined || ref.startsWith('sb_')) return ref;
    return this.#finder.get(ref).id;
  }
}
