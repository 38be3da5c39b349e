import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError, hasEnded } from '@coppice/protocol';
import type { Guest } from '@coppice/runtime';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import { GuestSocket } from '../inside/guest-socket.ts';
import type { RunLog } from './run-log.ts';

export interface InsideDoorParts {
  readonly state: State;
  readonly log: RunLog;
  readonly logger: Log;
  /** Of a sandbox that runs. Nothing is woken for its door. */
  readonly guestOf: (sandboxId: string) => Guest | undefined;
}

/** In memory, so in no snapshot. */
export const runSocket = '/run/coppice/run.sock';
/** Holds the helper `coppice-agent`. */
export const helperDirectory = '/run/coppice/bin';

/** Connections of one sandbox at once: more wait inside. */
const mostOpen = 16;
/** Between two connections of one sandbox, so that one that connects without end leaves time for everybody else. */
const paceMs = 10;
const retryMs = 200;

/**
 * The socket in the sandbox of each run through which its programs call the daemon, whatever network they have. Only calls of programs in
 * sandboxes come this way; which run they speak of stands in the token that they show.
 */
export class InsideDoor {
  readonly #parts: InsideDoorParts;
  readonly #open = new Map<string, AbortController>();
  #take: (connection: Duplex) => void = (connection) => connection.destroy();
  #closed = false;

  constructor(parts: InsideDoorParts) {
    this.#parts = parts;
    parts.log.onCommitted((runId) => this.#look(runId));
  }

  /** Who gets the connections. */
  serve(take: (connection: Duplex) => void): void {
    this.#take = take;
  }

  /** Before the agent of a run starts: from here on the socket and the helper are there. */
  async prepare(sandboxId: string, signal: AbortSignal): Promise<void> {
    const guest = this.#parts.guestOf(sandboxId);
    if (guest === undefined) return;
    try {
      await listen(guest.until(signal));
    } catch (error) {
      // An older version started the sandbox: its agent has no such door.
      if (error instanceof CoppiceError && error.code === 'unsupported') return;
      throw error;
    }
    this.#keep(sandboxId);
  }

  /** For the runs of a daemon before. */
  recover(): void {
    for (const run of this.#parts.state.runs.all())
      if (run.state === 'running' && run.sandboxId !== null) this.#keep(run.sandboxId);
  }

  close(): void {
    this.#closed = true;
    for (const door of this.#open.values()) door.abort();
  }

  #look(runId: string): void {
    const run = this.#parts.state.runs.byId(runId);
    if (run === undefined || run.sandboxId === null) return;
    if (run.state === 'running') this.#keep(run.sandboxId);
    else if (hasEnded(run.state) && this.#open.has(run.sandboxId) && !this.#isNeeded(run.sandboxId))
      this.#open.get(run.sandboxId)!.abort();
  }

  #isNeeded(sandboxId: string): boolean {
    return this.#parts.state.runs.all().some((run) => run.sandboxId === sandboxId && !hasEnded(run.state));
  }

  #keep(sandboxId: string): void {
    if (this.#closed || this.#open.has(sandboxId)) return;
    const door = new AbortController();
    this.#open.set(sandboxId, door);
    this.#serveSandbox(sandboxId, door.signal)
      .catch((error: unknown) => {
        if (!door.signal.aborted)
          this.#parts.logger.warn({ err: error, sandbox: sandboxId }, 'programs of a run cannot call');
      })
      .finally(() => this.#open.delete(sandboxId));
  }

  async #serveSandbox(sandboxId: string, signal: AbortSignal): Promise<void> {
    const connections = new Set<Duplex>();
    while (!signal.aborted) {
      const guest = this.#parts.guestOf(sandboxId);
      try {
        if (guest !== undefined) {
          await listen(guest.until(signal));
          for (;;) await this.#acceptOne(guest, connections, signal);
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof CoppiceError && error.code === 'unsupported') return;
        // The sandbox stopped, paused, or could not be reached for a moment.
      }
      await sleep(retryMs, undefined, { signal });
    }
  }

  async #acceptOne(guest: Guest, connections: Set<Duplex>, signal: AbortSignal): Promise<void> {
    const connection = new GuestSocket(await guest.until(signal).accept());
    connections.add(connection);
    connection.once('close', () => connections.delete(connection));
    connection.on('error', () => {});
    this.#take(connection);
    await sleep(paceMs, undefined, { signal });
    while (connections.size >= mostOpen)
      await Promise.race([...connections].map((open) => once(open, 'close', { signal })));
  }
}

const listen = (guest: Guest): Promise<void> => guest.listen(runSocket, `${helperDirectory}/coppice-agent`);
