import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Event, Scope } from '@coppice/protocol';
import type { EventFilter } from '../db/event-table.ts';
import type { State } from '../db/state.ts';
import type { Journal } from '../journal/journal.ts';
import type { SandboxFinder } from '../sandboxes/sandbox-finder.ts';

interface EventQuery {
  readonly after: number;
  readonly sandbox?: string | undefined;
  readonly type?: string | undefined;
  /** Whose eyes these are: only what concerns sandboxes that it reaches is there. */
  readonly scope: Scope;
}

/** Events of sandboxes that the scope reaches; what concerns no sandbox is for administrators. */
const reachedBy = (
  scope: Scope,
  sandboxId: string | undefined,
): Pick<EventFilter, 'sandboxId' | 'project' | 'runId'> | undefined => {
  switch (scope.kind) {
    case 'admin':
      return { sandboxId };
    case 'project':
      return { sandboxId, project: scope.project };
    case 'run':
      return { sandboxId, runId: scope.runId };
    case 'sandbox':
      return sandboxId === undefined || sandboxId === scope.sandboxId
        ? { sandboxId: scope.sandboxId }
        : undefined;
    case 'branch':
      return undefined;
  }
};

/** A call may reach a limit that is shared with others: how much those spent is not its caller's to know. */
const isOfOthers = ({ type, data }: Event, scope: Scope): boolean => {
  if (type !== 'budget.threshold' || scope.kind === 'admin' || data.scope === 'sandbox') return false;
  if (scope.kind === 'project') return data.scope !== 'project' || data.name !== scope.project;
  return scope.kind !== 'run' || data.scope !== 'run' || data.name !== scope.runId;
};

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
    const events = this.#read(query, query.after, query.limit - lost.length).filter(
      (event) => !isOfOthers(event, query.scope),
    );
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
        const page = this.#read(query, after, pageSize);
        const isFull = page.length === pageSize;
        const seen = isFull ? page.at(-1)!.seq : Math.max(after, this.#state.events.lastSeq());
        if (isFull) news = true;
        for (const event of [...lost, ...page]) {
          if (isOfOthers(event, query.scope)) continue;
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

  #read({ sandbox, type, scope }: EventQuery, after: number, limit: number): Event[] {
    const reached = reachedBy(scope, this.#sandboxId(sandbox));
    return reached === undefined ? [] : this.#state.events.list({ ...reached, after, limit, type });
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
