import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import type { GatewayEvent } from '@coppice/protocol';
import type { ConnectionRow, GatewayState, Place } from '../state.ts';

/** What was reached and what was refused, kept and told to who watches. */
export class ConnectionRecords {
  readonly #state: GatewayState;
  readonly #now: () => number;
  readonly #emit: (event: GatewayEvent) => void;
  readonly #told = new EventEmitter<{ row: [ConnectionRow] }>().setMaxListeners(0);
  /** When a refusal of a name was written down last, as programs that are refused ask again and again. */
  readonly #refusedAt = new Map<string, number>();

  constructor(state: GatewayState, now: () => number, emit: (event: GatewayEvent) => void) {
    this.#state = state;
    this.#now = now;
    this.#emit = emit;
  }

  add(row: Omit<ConnectionRow, 'id' | 'ended_ms'>): void {
    this.#told.emit('row', this.#state.addConnection({ ...row, ended_ms: this.#now() }));
  }

  /** A refusal, once a second for each name. */
  refused(sandbox: string, name: string, port: number, reason: string): void {
    const key = `${sandbox} ${name} ${port}`;
    const now = this.#now();
    if (now - (this.#refusedAt.get(key) ?? 0) < 1000) return;
    if (this.#refusedAt.size > 4096) this.#refusedAt.clear();
    this.#refusedAt.set(key, now);
    this.add({
      sandbox,
      name,
      port,
      verdict: 'refused',
      reason,
      remote: null,
      bytes_sent: 0,
      bytes_received: 0,
      began_ms: now,
    });
    this.#emit({ type: 'connection.refused', sandbox, name, port, reason });
  }

  /** A connection that waits for an answer. */
  asked({ sandbox, name, port }: Place, atMs: number): void {
    this.add({
      sandbox,
      name,
      port,
      verdict: 'asked',
      reason: null,
      remote: null,
      bytes_sent: 0,
      bytes_received: 0,
      began_ms: atMs,
    });
  }

  list(sandbox: string, after: number, limit: number): ConnectionRow[] {
    return this.#state.connections(sandbox, after, limit);
  }

  /** Settles when a connection of this sandbox was written down, when the time is over, or when who waits is gone. */
  next(sandbox: string, waitMs: number, waiting: Socket): Promise<void> {
    return new Promise((resolve) => {
      const listener = (row: ConnectionRow) => {
        if (row.sandbox === sandbox) done();
      };
      const timer = setTimeout(() => done(), waitMs);
      const done = () => {
        clearTimeout(timer);
        this.#told.off('row', listener);
        waiting.off('close', done);
        resolve();
      };
      this.#told.on('row', listener);
      waiting.once('close', done);
    });
  }
}
