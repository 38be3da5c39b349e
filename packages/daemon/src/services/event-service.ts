import type { Event } from '@coppice/protocol';
import type { State } from '../db/state.ts';
import type { Journal } from './journal.ts';
import type { SandboxFinder } from './sandbox-finder.ts';

interface EventQuery {
  readonly after: number;
  readonly sandbox?: string | undefined;
  readonly type?: string | undefined;
}

const pageSize = 500;

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
    const events = this.#state.events.list({
      after: query.after,
      limit: query.limit,
      sandboxId: this.#sandboxId(query.sandbox),
      type: query.type,
    });
    return { events, last_seq: this.#state.events.lastSeq() };
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
        const page = this.#state.events.list({ after, limit: pageSize, sandboxId, type: query.type });
        if (page.length === pageSize) news = true;
        for (const event of page) {
          after = event.seq;
          yield event;
          if (signal.aborted) return;
        }
      }
    } finally {
      unsubscribe();
      signal.removeEventListener('abort', onAbort);
    }
  }

  /** A sandbox that is gone still has its events, by its id. */
  #sandboxId(ref: string | undefined): string | undefined {
    if (ref === undefined || ref.startsWith('sb_')) return ref;
    return this.#finder.get(ref).id;
  }
}
