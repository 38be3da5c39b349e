import { setTimeout as sleep } from 'node:timers/promises';
import { type GatewayEvent, gatewayEventSchema } from '@coppice/protocol';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import type { Emit, Journal } from '../journal/journal.ts';
import type { GatewayPage, GatewayProcess } from './gateway-process.ts';

export interface GatewayFeedParts {
  readonly gateway: GatewayProcess;
  readonly state: State;
  readonly journal: Journal;
  readonly log: Log;
}

/**
 * Hears each event of the gateway exactly once, in the transaction that writes it down: what a listener writes to the database is
 * written with it. It must not wait for anything. For effects outside of the database, `Journal.onCommitted` tells what is certain.
 */
export type GatewayListener = (event: GatewayEvent, emit: Emit) => void;

const waitMs = 25_000;
const absentMs = 300;
const failedMs = 2_000;
const catchUpMs = 2;

/** Brings what the gateway tells into the daemon's own events, from where it was left, whichever of the two was restarted. */
export class GatewayFeed {
  readonly #parts: GatewayFeedParts;
  readonly #listeners = new Set<GatewayListener>();
  readonly #end = new AbortController();
  #running: Promise<void> | undefined;

  constructor(parts: GatewayFeedParts) {
    this.#parts = parts;
  }

  onCall(listener: GatewayListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  start(): void {
    this.#running ??= this.#follow();
  }

  async close(): Promise<void> {
    this.#end.abort();
    await this.#running;
  }

  async #follow(): Promise<void> {
    const { gateway, state, log } = this.#parts;
    const { signal } = this.#end;
    while (!signal.aborted) {
      try {
        const page = await gateway.events(state.gateway.position(), waitMs, signal);
        if (page === undefined) await sleep(absentMs, undefined, { signal });
        else this.#take(page);
      } catch (error) {
        if (signal.aborted) return;
        log.warn({ err: error }, 'the events of the gateway could not be read; they are asked for again');
        await sleep(failedMs, undefined, { signal }).catch(() => {});
      }
    }
  }

  /** Settles when all that the gateway has told until now was heard. */
  async caughtUp(signal: AbortSignal): Promise<void> {
    const { gateway, state } = this.#parts;
    const before = state.gateway.position();
    const last = (await gateway.events(before, 0, signal))?.events.at(-1);
    if (last === undefined) return;
    const isBehind = (): boolean => {
      const { epoch, seq } = state.gateway.position();
      return epoch === before.epoch && seq < last.seq;
    };
    while (isBehind()) await sleep(catchUpMs, undefined, { signal });
  }

  #take({ epoch, events }: GatewayPage): void {
    const { state, journal, log } = this.#parts;
    const last = events.at(-1);
    if (last === undefined) return;
    journal.commit((emit) => {
      for (const { at_ms, event } of events) {
        const known = gatewayEventSchema.safeParse(event);
        if (!known.success) {
          log.warn({ err: known.error }, 'the gateway told something that this daemon does not know');
          continue;
        }
        const { type, sandbox, ...data } = known.data;
        emit(type, sandbox, { ...data, at_ms });
        for (const listener of this.#listeners) this.#tell(listener, known.data, emit);
      }
      state.gateway.setPosition({ epoch, seq: last.seq });
    });
  }

  /** One that fails takes back what it wrote, and stops neither the others nor the feed. */
  #tell(listener: GatewayListener, event: GatewayEvent, emit: Emit): void {
    const said: Parameters<Emit>[] = [];
    try {
      this.#parts.state.transaction(() => listener(event, (...words) => void said.push(words)));
    } catch (error) {
      this.#parts.log.error({ err: error, event: event.type }, 'an event of the gateway was not taken in');
      return;
    }
    for (const words of said) emit(...words);
  }
}
