import { createServer, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError, type PortForward } from '@coppice/protocol';
import type { Guest } from '@coppice/runtime';
import type { ForwardRecord } from '../db/forward-table.ts';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import type { Journal } from '../journal/journal.ts';
import { KeyedLock } from '../journal/keyed-lock.ts';
import type { SandboxFinder } from '../sandboxes/sandbox-finder.ts';
import { forwardView } from '../sandboxes/views.ts';
import { type GuestAccess, withGuest } from './guest-access.ts';
import { joinStreams } from './port-stream.ts';

export interface PortServiceParts {
  readonly state: State;
  readonly journal: Journal;
  readonly finder: SandboxFinder;
  readonly guests: GuestAccess;
  readonly log: Log;
  /** Connections of all forwards together; each takes descriptors of the daemon. One forward may have half of them. */
  readonly maxConnections: number;
}

interface Listener {
  readonly server: Server;
  readonly sockets: Set<Socket>;
}

/** Ports of the host's loopback that lead to ports inside, through the guest agent: the sandbox needs no network for it. */
export class PortService {
  readonly #parts: PortServiceParts;
  /** By host port. */
  readonly #listeners = new Map<number, Listener>();
  #connections = 0;
  /** Forwards of one sandbox change one after another. */
  readonly #locks = new KeyedLock();

  constructor(parts: PortServiceParts) {
    this.#parts = parts;
  }

  async add(ref: string, guestPort: number, hostPort?: number): Promise<PortForward> {
    const { id, name } = this.#parts.finder.get(ref);
    return this.#locks.exclusive(id, () => this.#addLocked(id, name, guestPort, hostPort));
  }

  async #addLocked(id: string, name: string, guestPort: number, hostPort?: number): Promise<PortForward> {
    const { finder, state, journal } = this.#parts;
    const existing = state.forwards.ofSandbox(id).find((forward) => forward.guestPort === guestPort);
    if (existing !== undefined) {
      if (hostPort === undefined || hostPort === existing.hostPort) return forwardView(existing);
      throw new CoppiceError(
        'name_taken',
        `port ${guestPort} of ${name} is already forwarded, from ${existing.hostPort}`,
        { hint: 'Remove that forward first.' },
      );
    }
    const listener = await this.#listen(id, guestPort, hostPort ?? 0);
    const record = { sandboxId: id, guestPort, hostPort: listener.hostPort };
    try {
      journal.commit((emit) => {
        // It may have gone, or be going, since it was asked for.
        if (finder.get(id).state === 'destroying')
          throw new CoppiceError('not_found', `sandbox ${name} is being destroyed`);
        state.forwards.insert(record);
        emit('port.forwarded', id, { guest_port: guestPort, host_port: record.hostPort });
      });
    } catch (error) {
      await this.#close(record.hostPort);
      throw error;
    }
    return forwardView(record);
  }

  async list(ref: string): Promise<PortForward[]> {
    const { finder, state } = this.#parts;
    return state.forwards.ofSandbox(finder.get(ref).id).map(forwardView);
  }

  /** Each try is a connection of its own, closed at once: a server that counts them sees them. */
  async wait(
    ref: string,
    guestPort: number,
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<{ port: number; waited_ms: number }> {
    const { id, name } = this.#parts.finder.get(ref);
    const beganMs = performance.now();
    for (let pauseMs = 20; ; pauseMs = Math.min(500, pauseMs * 1.5)) {
      const isOpen = await withGuest(this.#parts.guests, id, ({ guest }) => isListening(guest, guestPort));
      const waitedMs = Math.round(performance.now() - beganMs);
      if (isOpen) return { port: guestPort, waited_ms: waitedMs };
      if (waitedMs + pauseMs > timeoutMs)
        throw new CoppiceError('timeout', `nothing listens on port ${guestPort} of sandbox ${name} yet`, {
          hint: `Look at what was to listen there: \`coppice jobs ${name}\`, \`coppice logs ${name} JOB\`. Or wait for longer.`,
          details: { port: guestPort, waited_ms: waitedMs },
        });
      await sleep(pauseMs, undefined, { signal });
    }
  }

  async remove(ref: string, guestPort: number): Promise<void> {
    const { finder, state, journal } = this.#parts;
    const { id, name } = finder.get(ref);
    await this.#locks.exclusive(id, async () => {
      const record = state.forwards.ofSandbox(id).find((forward) => forward.guestPort === guestPort);
      if (record === undefined)
        throw new CoppiceError('not_found', `port ${guestPort} of sandbox ${name} is not forwarded`, {
          hint: 'List what is forwarded with `coppice port`.',
        });
      journal.commit((emit) => {
        state.forwards.delete(id, guestPort);
        emit('port.removed', id, { guest_port: guestPort, host_port: record.hostPort });
      });
      await this.#close(record.hostPort);
    });
  }

  /** After a restart of the daemon. A port that somebody took meanwhile is said, and the forward stays on record. */
  async reopen(): Promise<void> {
    const forwards = this.#parts.state.forwards.all();
    await Promise.all(
      forwards.map((forward) => this.#locks.exclusive(forward.sandboxId, () => this.#reopen(forward))),
    );
  }

  async #reopen({ sandboxId, guestPort, hostPort }: ForwardRecord): Promise<void> {
    const { state, journal } = this.#parts;
    const kept = state.forwards.ofSandbox(sandboxId).some((forward) => forward.hostPort === hostPort);
    // Asked for or taken away since the start.
    if (!kept || this.#listeners.has(hostPort)) return;
    await this.#listen(sandboxId, guestPort, hostPort).catch((error: unknown) => {
      const reason = (error as Error).message;
      const lost = { guest_port: guestPort, host_port: hostPort, reason };
      journal.commit((emit) => emit('port.lost', sandboxId, lost));
    });
  }

  async closeForwards(sandboxId: string): Promise<void> {
    await this.#locks.exclusive(sandboxId, async () => {
      const forwards = this.#parts.state.forwards.ofSandbox(sandboxId);
      await Promise.all(forwards.map((forward) => this.#close(forward.hostPort)));
    });
  }

  async close(): Promise<void> {
    await Promise.all([...this.#listeners.keys()].map((port) => this.#close(port)));
  }

  async #listen(sandboxId: string, guestPort: number, wanted: number): Promise<{ hostPort: number }> {
    const sockets = new Set<Socket>();
    const { maxConnections } = this.#parts;
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
      if (this.#connections >= maxConnections || sockets.size >= maxConnections / 2) {
        socket.resetAndDestroy();
        return;
      }
      this.#connections += 1;
      sockets.add(socket);
      socket.on('close', () => {
        this.#connections -= 1;
        sockets.delete(socket);
      });
      socket.on('error', () => socket.destroy());
      void this.#serve(sandboxId, guestPort, socket);
    });
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen({ host: '127.0.0.1', port: wanted, exclusive: true }, resolve);
    }).catch((cause: NodeJS.ErrnoException) => {
      if (cause.code !== 'EADDRINUSE' && cause.code !== 'EACCES') throw cause;
      throw new CoppiceError('in_use', `port ${wanted} of this machine is taken`, {
        hint: 'Choose another host port, or leave it out to get a free one.',
        cause,
      });
    });
    const address = server.address();
    if (address === null || typeof address === 'string') throw new Error('a TCP server has a port');
    this.#listeners.set(address.port, { server, sockets });
    return { hostPort: address.port };
  }

  /** A connection wakes a sandbox that sleeps, and its traffic keeps it awake. */
  async #serve(sandboxId: string, guestPort: number, socket: Socket): Promise<void> {
    try {
      const lease = await this.#parts.guests.acquire(sandboxId);
      try {
        await joinStreams(socket, await lease.guest.dial(guestPort), () => lease.touch());
      } finally {
        lease.release();
      }
    } catch (error) {
      this.#parts.log.info(
        { sandbox: sandboxId, guestPort, reason: (error as Error).message },
        'a forwarded connection was refused',
      );
      socket.resetAndDestroy();
    }
  }

  async #close(hostPort: number): Promise<void> {
    const listener = this.#listeners.get(hostPort);
    if (listener === undefined) return;
    this.#listeners.delete(hostPort);
    for (const socket of listener.sockets) socket.destroy();
    await new Promise((resolve) => listener.server.close(resolve));
  }
}

/** Refused is an answer; that the sandbox does not answer is an error. */
async function isListening(guest: Guest, port: number): Promise<boolean> {
  try {
    (await guest.dial(port)).close();
    return true;
  } catch (error) {
    if (error instanceof CoppiceError && error.code !== 'unavailable' && error.code !== 'timeout')
      return false;
    throw error;
  }
}
