import type { Event, RouteResult } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import type { Caller, CallOptions } from './connection/caller.ts';

export interface EventFilter extends CallOptions {
  /** Events after this sequence number; 0 for all that are kept. */
  readonly after?: number;
  readonly sandbox?: string;
  readonly type?: string;
}

const firstPauseMs = 50;
const longestPauseMs = 2000;

export class Events {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  list({
    signal,
    ...query
  }: EventFilter & { readonly limit?: number } = {}): Promise<RouteResult<'listEvents'>> {
    return this.#caller.call('listEvents', { query, signal });
  }

  /** Events as they happen over one connection: it ends or throws with that. `onOpen`: the daemon has accepted it. */
  async *once({
    after = 0,
    signal,
    onOpen,
    ...filter
  }: EventFilter & { readonly onOpen?: () => void } = {}): AsyncGenerator<Event, void, undefined> {
    const query = { after, ...filter };
    for await (const { data } of this.#caller.events('streamEvents', { query, signal }, onOpen))
      yield JSON.parse(data) as Event;
  }

  /**
   * Events as they happen, without a gap: when the daemon restarts, the stream goes on after the last one seen. One of
   * type `events.lost` says which were no longer kept when they were asked for.
   * Ends when the loop is left or the signal fires.
   */
  stream({ after = 0, signal, ...filter }: EventFilter = {}): AsyncGenerator<Event, void, undefined> {
    return resumed<Event>(after, signal, (last) =>
      this.#caller.events('streamEvents', { query: { after: last, ...filter }, signal }),
    );
  }
}

/** Goes on after the last event seen when the daemon went away and came back. */
export async function* resumed<T extends { readonly seq: number }>(
  after: number,
  signal: AbortSignal | undefined,
  open: (after: number) => AsyncIterable<{ readonly data: string }>,
): AsyncGenerator<T, void, undefined> {
  let last = after;
  let pauseMs = firstPauseMs;
  let connected = false;
  while (!signal?.aborted) {
    try {
      for await (const { data } of open(last)) {
        const event = JSON.parse(data) as T;
        last = event.seq;
        connected = true;
        pauseMs = firstPauseMs;
        yield event;
      }
      connected = true;
    } catch (error) {
      if (signal?.aborted) return;
      // A daemon that never answered is an error of the caller; one that went away comes back.
      if (!connected || !(error instanceof CoppiceError) || error.code !== 'unavailable') throw error;
    }
    await pause(pauseMs, signal);
    pauseMs = Math.min(pauseMs * 2, longestPauseMs);
  }
}

/** Ends early when the signal fires. */
export const pause = (ms: number, signal: AbortSignal | undefined): Promise<void> =>
  new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener('abort', end, { once: true });
    if (signal?.aborted) end();
  });
