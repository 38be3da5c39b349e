import { createSocket, type Socket as DatagramSocket } from 'node:dgram';
import { createServer, type Server, type Socket } from 'node:net';
import { ownDomain, plainName } from '@coppice/protocol';
import { decode, encode, type Packet } from 'dns-packet';
import type { NameTables } from './name-table.ts';
import { type EgressPolicy, judge, type Policies } from './policies.ts';
import type { Reach } from './reach.ts';

export interface NameServerParts {
  readonly policies: Policies;
  readonly tables: NameTables;
  readonly reach: Reach;
  /** The address that stands for the gateway itself. */
  readonly ownAddress: string;
  /** The host: what its policy opens there is reached at this address. */
  readonly hostAddress: string;
  readonly onRefused: (policy: EgressPolicy, name: string, reason: string) => void;
}

/** Short, as what a name stands for may change with the policy. */
const ttl = 30;
const mostAtOnce = 64;
const longestMessage = 4096;
const idleMs = 10_000;

const noError = 0;
const serverFailure = 2;
const noSuchName = 3;
const authoritative = 1 << 10;
const recursionDesired = 1 << 8;
const recursionAvailable = 1 << 7;

/**
 * The only resolver that a sandbox with a policy by name reaches. A name that the policy allows has an address that stands for
 * that name here; every other name does not exist, so nothing can be told to the outside by asking for it.
 */
export class NameServer {
  readonly #parts: NameServerParts;
  readonly #datagrams: DatagramSocket;
  readonly #streams: Server;
  readonly #busy = new Map<string, number>();

  private constructor(parts: NameServerParts) {
    this.#parts = parts;
    this.#datagrams = createSocket('udp4');
    this.#datagrams.on('message', (message, { address, port }) => {
      void this.#answer(message, address).then((answer) => {
        if (answer !== undefined) this.#datagrams.send(answer, port, address, () => {});
      });
    });
    this.#streams = createServer((socket) => this.#serve(socket));
  }

  /** UDP and TCP at one port: this one if it is free. */
  static async open(parts: NameServerParts, wanted: number): Promise<{ server: NameServer; port: number }> {
    const server = new NameServer(parts);
    const port = await listen(server.#streams, wanted);
    await new Promise<void>((resolve, reject) => {
      server.#datagrams.once('error', reject);
      server.#datagrams.bind({ port, address: '0.0.0.0' }, () => {
        server.#datagrams.removeListener('error', reject);
        server.#datagrams.on('error', () => {});
        resolve();
      });
    });
    return { server, port };
  }

  close(): void {
    this.#datagrams.close();
    this.#streams.close();
  }

  /** Messages with their length before them, one after another. */
  #serve(socket: Socket): void {
    let bytes = Buffer.alloc(0);
    socket.setTimeout(idleMs, () => socket.destroy());
    socket.on('error', () => socket.destroy());
    if (this.#parts.policies.of(socket.remoteAddress) === undefined) {
      socket.destroy();
      return;
    }
    socket.on('data', (chunk) => {
      bytes = Buffer.concat([bytes, chunk]);
      while (bytes.length >= 2) {
        const length = bytes.readUInt16BE(0);
        if (length > longestMessage) {
          socket.destroy();
          return;
        }
        if (bytes.length < 2 + length) return;
        const message = bytes.subarray(2, 2 + length);
        bytes = bytes.subarray(2 + length);
        void this.#answer(message, socket.remoteAddress ?? '').then((answer) => {
          if (answer === undefined || socket.destroyed) return;
          const prefix = Buffer.alloc(2);
          prefix.writeUInt16BE(answer.length);
          socket.write(Buffer.concat([prefix, answer]));
        });
      }
    });
  }

  /** Undefined where silence is the answer: to whoever has no policy here, and to what is no question. */
  async #answer(message: Buffer, from: string): Promise<Buffer | undefined> {
    const policy = this.#parts.policies.of(from);
    if (policy === undefined || message.length > longestMessage) return undefined;
    let query: Packet;
    try {
      query = decode(message);
    } catch {
      return undefined;
    }
    const [question, ...others] = query.questions ?? [];
    if (query.type !== 'query' || question === undefined || others.length > 0) return undefined;
    const busy = this.#busy.get(policy.sandbox) ?? 0;
    if (busy >= mostAtOnce) return undefined;
    this.#busy.set(policy.sandbox, busy + 1);
    try {
      const { code, address } = await this.#resolve(policy, plainName(question.name), question.type);
      return encode({
        type: 'response',
        id: query.id ?? 0,
        flags: authoritative | recursionAvailable | ((query.flags ?? 0) & recursionDesired) | code,
        questions: [question],
        answers: address === undefined ? [] : [{ type: 'A', name: question.name, ttl, data: address }],
      });
    } catch {
      // A name that cannot be written back is no name.
      return undefined;
    } finally {
      const left = (this.#busy.get(policy.sandbox) ?? 1) - 1;
      if (left === 0) this.#busy.delete(policy.sandbox);
      else this.#busy.set(policy.sandbox, left);
    }
  }

  async #resolve(
    policy: EgressPolicy,
    name: string,
    type: string,
  ): Promise<{ code: number; address?: string | undefined }> {
    const { tables, reach, onRefused } = this.#parts;
    const isAddress = type === 'A';
    if (name.endsWith(`.${ownDomain}`)) {
      const own = this.#own(name);
      return own === undefined
        ? { code: noSuchName }
        : { code: noError, address: isAddress ? own : undefined };
    }
    const judgement = judge(policy, name);
    if (!judgement.allowed && judgement.asks) {
      // Nobody outside is asked about a name before somebody has allowed it: a name can carry a message.
      return { code: noError, address: isAddress ? tables.addressOf(policy.sandbox, name) : undefined };
    }
    if (!judgement.allowed) {
      if (isAddress) onRefused(policy, name, judgement.reason);
      return { code: noSuchName };
    }
    // Only addresses are told: other records could carry what an address must not, such as keys to hide a name.
    if (!isAddress) return { code: noError };
    try {
      if (!(await reach.exists(name))) return { code: noSuchName };
    } catch {
      return { code: serverFailure };
    }
    return { code: noError, address: tables.addressOf(policy.sandbox, name) };
  }

  #own(name: string): string | undefined {
    if (name === `gateway.${ownDomain}`) return this.#parts.ownAddress;
    return name === `host.${ownDomain}` ? this.#parts.hostAddress : undefined;
  }
}

/** Listens at this port, or at any where it is taken. */
export function listen(server: Server, wanted: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const bound = () => {
      const address = server.address();
      if (address === null || typeof address === 'string') reject(new Error('no port'));
      else resolve(address.port);
    };
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EADDRINUSE' || wanted === 0) return reject(error);
      server.once('error', reject);
      server.listen({ port: 0, host: '0.0.0.0' }, bound);
    });
    server.listen({ port: wanted, host: '0.0.0.0' }, bound);
  });
}
