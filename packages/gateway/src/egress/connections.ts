import { createServer, type Server, type Socket } from 'node:net';
import { mayAskModels, plainName } from '@coppice/protocol';
import type { SecretKeeper } from '../secrets/secret-keeper.ts';
import { type Hello, longestHello, readClientHello } from './client-hello.ts';
import { type Errand, printable } from './errand.ts';
import { type HttpByName, looksLikeHttp } from './http-by-name.ts';
import { Inflow } from './inflow.ts';
import { listen } from './name-server.ts';
import type { NameTables } from './name-table.ts';
import { type EgressPolicy, judge, type Policies } from './policies.ts';
import type { Questions } from './questions.ts';
import { type Reach, Unreachable } from './reach.ts';
import type { ConnectionRecords } from './records.ts';

export interface ConnectionsParts {
  readonly policies: Policies;
  readonly tables: NameTables;
  readonly reach: Reach;
  readonly records: ConnectionRecords;
  readonly keeper: SecretKeeper;
  readonly http: HttpByName;
  readonly questions: Questions;
  readonly ownAddress: string;
  readonly now: () => number;
}

/** At the ports of the web a connection says where it goes, or it does not go. */
const spoken = new Set([80, 443]);
const openingMs = 15_000;
const mostPerSandbox = 2048;

/** Takes the connections of sandboxes to the addresses that stand for names, and carries them to those names. */
export class Connections {
  readonly #parts: ConnectionsParts;
  readonly #servers = new Map<number, { readonly server: Server; readonly listener: number }>();
  readonly #listening = new Map<number, Promise<number>>();
  readonly #open = new Map<string, Set<Socket>>();

  constructor(parts: ConnectionsParts) {
    this.#parts = parts;
  }

  /** The port of the host where connections to this port arrive. */
  async listener(port: number, wanted: number): Promise<number> {
    const known = this.#servers.get(port)?.listener;
    if (known !== undefined) return known;
    const opening = this.#listening.get(port) ?? this.#listen(port, wanted);
    this.#listening.set(port, opening);
    return opening.finally(() => this.#listening.delete(port));
  }

  get count(): number {
    return this.#open.values().reduce((sum, { size }) => sum + size, 0);
  }

  get listeners(): ReadonlyMap<number, number> {
    return new Map([...this.#servers].map(([port, { listener }]) => [port, listener]));
  }

  /** Ends what a policy that has changed does not allow any more. */
  review(sandbox: string, policy: EgressPolicy | undefined): void {
    for (const socket of this.#open.get(sandbox) ?? []) {
      const stays =
        policy !== undefined && socket.remoteAddress === policy.address && this.#isAllowed(policy, socket);
      if (!stays) socket.destroy();
    }
  }

  /** Ends all that a sandbox has open, so that nothing of it is left on either side. */
  cut(sandbox: string): void {
    for (const socket of this.#open.get(sandbox) ?? []) socket.resetAndDestroy();
  }

  #isAllowed(policy: EgressPolicy, socket: Socket): boolean {
    if (socket.localAddress === this.#parts.ownAddress) return mayAskModels(policy.allow);
    const errand = errands.get(socket);
    if (errand === undefined) return false;
    const judgement = judge(policy, errand.name, errand.port);
    if (!judgement.allowed && !(judgement.asks && this.#parts.questions.concerns(socket, errand)))
      return false;
    // What goes with its requests was decided when it began.
    const { keeper } = this.#parts;
    const isSame = policy.secrets.join() === errand.policy.secrets.join();
    return isSame || (!keeper.keeps(errand) && !keeper.keeps({ ...errand, policy }));
  }

  close(): void {
    for (const { server } of this.#servers.values()) server.close();
    for (const sockets of this.#open.values()) for (const socket of sockets) socket.destroy();
  }

  async #listen(port: number, wanted: number): Promise<number> {
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      socket.on('error', () => socket.destroy());
      void this.#take(socket, port).catch(() => socket.destroy());
    });
    const listener = await listen(server, wanted);
    this.#servers.set(port, { server, listener });
    return listener;
  }

  async #take(socket: Socket, port: number): Promise<void> {
    const { policies, tables, http, keeper, ownAddress, now } = this.#parts;
    const policy = policies.of(socket.remoteAddress);
    // Not a sandbox of this home: whoever else reaches this port is told nothing.
    if (policy === undefined) return void socket.destroy();
    if (!this.#admit(policy.sandbox, socket)) return;
    if (socket.localAddress === ownAddress) return http.serveOwn(socket, policy);
    const name = tables.nameAt(policy.sandbox, socket.localAddress);
    if (name === undefined) return void socket.destroy();
    const errand = await this.#admitted(socket, { policy, name, port, beganMs: now() });
    if (errand === undefined) return void socket.destroy();
    const isKept = keeper.keeps(errand);
    const opening = spoken.has(port) || isKept ? await this.#opening(socket, openingMs) : undefined;
    if (opening !== undefined && !this.#mayPass(errand, opening, socket)) return;
    if (opening?.kind === 'http') return http.serve(socket, errand);
    if (isKept) return http.serveKept(socket, errand);
    await this.#carry(socket, errand, opening === undefined);
  }

  /** With the policy that holds once it may go on; undefined where it may not. */
  async #admitted(socket: Socket, errand: Errand): Promise<Errand | undefined> {
    const { policies, questions, records } = this.#parts;
    errands.set(socket, errand);
    const judgement = judge(errand.policy, errand.name, errand.port);
    if (judgement.allowed) return errand;
    const refusal = judgement.asks ? await questions.ask(socket, errand) : judgement.reason;
    if (refusal !== undefined) {
      records.refused(errand.policy.sandbox, errand.name, errand.port, refusal);
      return undefined;
    }
    // The answer may have changed the policy, and who asked may have gone.
    const policy = policies.of(socket.remoteAddress);
    if (policy === undefined || socket.destroyed) return undefined;
    const current = { ...errand, policy };
    errands.set(socket, current);
    return current;
  }

  /** The first bytes of a client, until they say what they are. They are put back. */
  async #opening(socket: Socket, withinMs?: number): Promise<Opening> {
    const timer = withinMs === undefined ? undefined : setTimeout(() => socket.destroy(), withinMs);
    try {
      let bytes = Buffer.alloc(0);
      for (;;) {
        const chunk: Buffer | null = socket.read() as Buffer | null;
        if (chunk === null) {
          if (socket.destroyed || socket.readableEnded) return { kind: 'silent' };
          await readable(socket);
          continue;
        }
        bytes = Buffer.concat([bytes, chunk]);
        const opening = openingOf(bytes);
        if (opening === undefined) continue;
        socket.unshift(bytes);
        return opening;
      }
    } finally {
      clearTimeout(timer);
    }
  }

  #mayPass(errand: Errand, opening: Opening, socket: Socket): boolean {
    const reason = refusalOf(errand, opening);
    if (reason === undefined) return true;
    const { policy, name, port } = errand;
    if (opening.kind !== 'silent') this.#parts.records.refused(policy.sandbox, name, port, reason);
    socket.destroy();
    return false;
  }

  /** Both ways, byte for byte, until both have ended. */
  async #carry(inside: Socket, errand: Errand, unspoken: boolean): Promise<void> {
    const { reach, records } = this.#parts;
    const { policy, name, port, beganMs } = errand;
    const inflow = new Inflow();
    let outside: Socket;
    try {
      outside = await reach.connect(policy, name, port, inflow.reading);
    } catch (error) {
      const reason = error instanceof Unreachable ? error.message : `${name}: ${(error as Error).message}`;
      records.refused(policy.sandbox, name, port, reason);
      inside.destroy();
      return;
    }
    const remote = outside.remoteAddress ?? null;
    let turnedIntoHttp = false;
    outside.on('error', () => {});
    inside.on('error', () => outside.destroy());
    outside.once('close', () => {
      if (!inside.writableFinished && !turnedIntoHttp) inside.destroy();
    });
    inside.once('close', () => {
      outside.destroy();
      if (turnedIntoHttp) return;
      records.add({
        sandbox: policy.sandbox,
        name,
        port,
        verdict: 'allowed',
        reason: null,
        remote,
        bytes_sent: outside.bytesWritten,
        bytes_received: outside.bytesRead,
        began_ms: beganMs,
      });
    });
    if (inside.destroyed) return void outside.destroy();
    inflow.into(inside, outside);
    // Some servers speak first, so their first word is not waited for; but what a client then says must fit its name.
    if (unspoken) {
      const opening = await this.#opening(inside);
      if (opening.kind === 'silent') return void outside.end();
      if (opening.kind === 'tls' && !this.#mayPass(errand, opening, inside)) return;
      if (opening.kind === 'http') {
        turnedIntoHttp = true;
        outside.destroy();
        return this.#parts.http.serve(inside, errand);
      }
    }
    inside.pipe(outside);
  }

  #admit(sandbox: string, socket: Socket): boolean {
    const open = this.#open.get(sandbox) ?? new Set();
    if (open.size >= mostPerSandbox) {
      socket.destroy();
      return false;
    }
    this.#open.set(sandbox, open.add(socket));
    socket.once('close', () => {
      open.delete(socket);
      if (open.size === 0 && this.#open.get(sandbox) === open) this.#open.delete(sandbox);
    });
    return true;
  }
}

const errands = new WeakMap<Socket, Errand>();

type Opening =
  | { readonly kind: 'tls'; readonly hello: Hello & { state: 'whole' | 'broken' } }
  | { readonly kind: 'http' }
  | { readonly kind: 'other' }
  | { readonly kind: 'silent' };

/** Undefined while more bytes are needed to tell. */
function openingOf(bytes: Buffer): Opening | undefined {
  if (bytes[0] === 22) {
    const hello = readClientHello(bytes);
    if (hello.state !== 'partial') return { kind: 'tls', hello };
    return bytes.length > longestHello ? { kind: 'tls', hello: { state: 'broken' } } : undefined;
  }
  const http = looksLikeHttp(bytes);
  return http === undefined ? undefined : { kind: http ? 'http' : 'other' };
}

function refusalOf({ name, port }: Errand, opening: Opening): string | undefined {
  if (opening.kind === 'http') return undefined;
  if (opening.kind !== 'tls') return `what was sent to ${name} at port ${port} is neither TLS nor HTTP`;
  if (opening.hello.state === 'broken') return `the TLS greeting to ${name} cannot be read`;
  const { serverName, hidesItsName } = opening.hello.hello;
  if (hidesItsName)
    return `the TLS greeting to ${name} hides the name that it means (encrypted client hello)`;
  if (serverName === undefined) return `the TLS greeting to ${name} names no server`;
  if (plainName(serverName) !== name)
    return `a connection to ${name} asked for ${printable(serverName)} instead`;
  return undefined;
}

function readable(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      for (const event of ['readable', 'end', 'close'] as const) socket.removeListener(event, done);
      resolve();
    };
    for (const event of ['readable', 'end', 'close'] as const) socket.on(event, done);
  });
}
