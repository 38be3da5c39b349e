import {
  Agent,
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  request as send,
} from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { pipeline, type Transform } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { plainName } from '@coppice/protocol';
import { Redactor, redactText } from '../secrets/redactor.ts';
import { AmbiguousPath, type Cloaked, type SecretKeeper } from '../secrets/secret-keeper.ts';
import { type Errand, printable } from './errand.ts';
import { forwarded, forwardedOf, withoutMisleading } from './forwarded-headers.ts';
import { branchesOf, gitAsk, readPush, refusalOfPush, refused } from './git-rules.ts';
import type { EgressPolicy } from './policies.ts';
import { type Reach, Unreachable } from './reach.ts';
import type { ConnectionRecords } from './records.ts';
import { refusalOfUpgrade, upgrade } from './upgrade.ts';

export interface HttpByNameParts {
  readonly reach: Reach;
  readonly records: ConnectionRecords;
  readonly keeper: SecretKeeper;
  /** Answers what is asked of the gateway itself. */
  readonly own: (request: IncomingMessage, response: ServerResponse, policy: EgressPolicy) => void;
}

/** One connection of a sandbox, whose every request must be for its name. */
interface Visit {
  readonly errand: Errand | undefined;
  readonly policy: EgressPolicy;
  /** TLS was ended here, so that secrets can be put in. */
  readonly isKept: boolean;
  /** Keeps the connection to the outside between requests. */
  readonly agent: Agent;
  readonly traffic: Traffic;
}

/** What went over the connections that were made for a visit. */
class Traffic {
  remote: string | null = null;
  readonly #open = new Set<Socket>();
  #sent = 0;
  #received = 0;

  add(outside: Socket): void {
    this.remote ??= outside.remoteAddress ?? null;
    this.#open.add(outside);
    outside.once('close', () => {
      this.#open.delete(outside);
      this.#sent += outside.bytesWritten;
      this.#received += outside.bytesRead;
    });
  }

  get sent(): number {
    return this.#open.values().reduce((sum, each) => sum + each.bytesWritten, this.#sent);
  }

  get received(): number {
    return this.#open.values().reduce((sum, each) => sum + each.bytesRead, this.#received);
  }
}

/** Carries HTTP, looking at the host of every request. */
export class HttpByName {
  readonly #parts: HttpByNameParts;
  readonly #server: Server;
  readonly #visits = new WeakMap<Duplex, Visit>();

  constructor(parts: HttpByNameParts) {
    this.#parts = parts;
    this.#server = createServer({ keepAliveTimeout: 60_000, requestTimeout: 0, headersTimeout: 15_000 });
    this.#server.on('request', (request, response) => {
      this.#pass(request, response).catch(() => response.destroy());
    });
    this.#server.on('upgrade', (request, socket, head) => this.#upgrade(request, socket, head));
    this.#server.on('connect', (_request, socket) => socket.end('HTTP/1.1 405 Method Not Allowed\r\n\r\n'));
    this.#server.on('clientError', (_error, socket) => socket.destroy());
  }

  /** A connection in TLS to a host that a secret belongs to. */
  async serveKept(socket: Socket, errand: Errand): Promise<void> {
    const { keeper, records } = this.#parts;
    try {
      this.serve(await keeper.accept(socket, errand.name), errand, true);
    } catch (error) {
      const { policy, name, port } = errand;
      const reason = `${name} has a secret, and the program does not trust the gateway for it: ${(error as Error).message}`;
      records.refused(policy.sandbox, name, port, reason);
      socket.destroy();
    }
  }

  serve(socket: Socket, errand: Errand, isKept = false): void {
    const visit = this.#receive(socket, errand.policy, errand, isKept);
    const { policy, name, port, beganMs } = errand;
    socket.once('close', () => {
      const { remote, sent, received } = visit.traffic;
      visit.agent.destroy();
      if (remote === null) return;
      this.#parts.records.add({
        sandbox: policy.sandbox,
        name,
        port,
        verdict: 'allowed',
        reason: null,
        remote,
        bytes_sent: sent,
        bytes_received: received,
        began_ms: beganMs,
      });
    });
  }

  serveOwn(socket: Socket, policy: EgressPolicy): void {
    this.#receive(socket, policy, undefined);
  }

  #receive(socket: Socket, policy: EgressPolicy, errand: Errand | undefined, isKept = false): Visit {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    if (errand !== undefined) {
      // Not through the agent's own way, which would look the name up itself.
      agent.createConnection = (_options, done) => {
        const connecting = this.#parts.reach
          .connect(errand.policy, errand.name, errand.port)
          .then((outside): Socket | Promise<Socket> => {
            visit.traffic.add(outside);
            return isKept ? this.#parts.keeper.reach(outside, errand.name) : outside;
          });
        connecting.then(
          (outside) => done?.(null, outside),
          (error: Error) => done?.(error, undefined as never),
        );
        return undefined as never;
      };
    }
    const visit: Visit = { errand, policy, isKept, agent, traffic: new Traffic() };
    this.#visits.set(socket, visit);
    this.#server.emit('connection', socket);
    return visit;
  }

  async #pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const visit = this.#visits.get(request.socket);
    if (visit === undefined) return void request.socket.destroy();
    if (visit.errand === undefined) return this.#parts.own(request, response, visit.policy);
    const { errand, agent } = visit;
    const refusal = this.#refusal(request, errand);
    if (refusal !== undefined) return refuse(response, 403, refusal);
    const plain = { path: request.url ?? '/', headers: forwardedOf(request) };
    let cloaked: Cloaked | undefined;
    try {
      if (visit.isKept)
        cloaked = this.#parts.keeper.cloak(
          errand,
          request.method ?? 'GET',
          plain.path,
          withoutMisleading(plain.headers),
        );
    } catch (error) {
      const why =
        error instanceof AmbiguousPath ? error.message : `the secrets of ${errand.name} cannot be used`;
      this.#parts.records.refused(errand.policy.sandbox, errand.name, errand.port, why);
      return refuse(response, 403, why);
    }
    const head = visit.isKept ? await this.#judgeGit(request, response, errand) : undefined;
    if (head === null) return;
    const { path, headers } = cloaked ?? plain;
    const outgoing = send({
      agent,
      host: errand.name,
      port: errand.port,
      method: request.method ?? 'GET',
      path,
      headers,
      setHost: false,
    });
    outgoing.on('response', (answer) => {
      if (cloaked !== undefined) return uncloak(answer, response, request.method === 'HEAD', cloaked.needles);
      response.writeHead(answer.statusCode ?? 502, answer.statusMessage, forwarded(answer.headers));
      pipeline(answer, response, () => {});
    });
    outgoing.on('error', (error) => {
      const reason = reasonOf(error, errand.name);
      this.#parts.records.refused(errand.policy.sandbox, errand.name, errand.port, reason);
      if (response.headersSent) response.destroy();
      else refuse(response, 502, reason);
    });
    response.once('close', () => {
      if (!response.writableFinished) outgoing.destroy();
    });
    if (head !== undefined) outgoing.write(head);
    pipeline(request, outgoing, () => {});
  }

  /** What was read of a push that is allowed; null where the request was answered with a refusal. */
  async #judgeGit(
    request: IncomingMessage,
    response: ServerResponse,
    errand: Errand,
  ): Promise<Buffer | undefined | null> {
    const rules = this.#parts.keeper.gitRules(errand);
    if (rules === undefined) return undefined;
    const { policy, name, port } = errand;
    const ask = gitAsk(request.method ?? 'GET', request.url ?? '/');
    const branches = ask && branchesOf(rules, ask.repository);
    const no = (reason: string): null => {
      this.#parts.records.refused(policy.sandbox, name, port, reason);
      refuse(response, 403, reason);
      return null;
    };
    if (ask === undefined) return no(`${name} is for git alone here`);
    if (branches === undefined)
      return no(`this sandbox has no rule for the repository ${printable(ask.repository)}`);
    if (ask.kind === 'push' && branches.length === 0)
      return no(`this sandbox may fetch ${printable(ask.repository)}, and not push to it`);
    if (!ask.isPush) return undefined;
    try {
      const push = await readPush(request);
      const refs = refused(push.refs, branches);
      if (refs.length === 0) return push.head;
      const sentence = `Coppice: this sandbox may push to ${branches.join(', ')} of ${ask.repository}, and not to ${refs.map(printable).join(', ')}.`;
      this.#parts.records.refused(policy.sandbox, name, port, sentence);
      request.resume();
      response.writeHead(200, {
        'content-type': 'application/x-git-receive-pack-result',
        connection: 'close',
      });
      response.end(refusalOfPush(push, 'not a branch that this sandbox may push to', sentence));
      return null;
    } catch (error) {
      return no((error as Error).message);
    }
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const visit = this.#visits.get(request.socket);
    // From the answer on nobody could look for a secret in it.
    if (visit?.errand === undefined || visit.isKept || this.#refusal(request, visit.errand) !== undefined)
      return void socket.destroy();
    const { errand, agent } = visit;
    const { policy, name, port } = errand;
    const refused = (reason: string): void => this.#parts.records.refused(policy.sandbox, name, port, reason);
    const refusal = refusalOfUpgrade(request);
    if (refusal !== undefined) {
      refused(refusal);
      return void socket.destroy();
    }
    upgrade(request, socket, head, { errand, agent, onFailed: (error) => refused(reasonOf(error, name)) });
  }

  #refusal(request: IncomingMessage, { policy, name, port }: Errand): string | undefined {
    const hosts = request.headersDistinct.host ?? [];
    const host = hosts.length === 1 ? (hosts[0] ?? '') : '';
    const isNamed = plainName(host.replace(/:\d{1,5}$/, '')) === name;
    // A whole address in the request line would count instead of the host.
    if (isNamed && request.url?.startsWith('/')) return undefined;
    const reason = `a connection to ${name} asked for ${printable(host) || 'no host'} instead`;
    this.#parts.records.refused(policy.sandbox, name, port, reason);
    return reason;
  }
}

/** Passes an answer on without the values that went out with its request. */
function uncloak(
  answer: IncomingMessage,
  response: ServerResponse,
  isHead: boolean,
  needles: readonly Buffer[],
): void {
  const status = answer.statusCode ?? 502;
  const headers: IncomingHttpHeaders = Object.fromEntries(
    Object.entries(forwarded(answer.headers))
      // The name of a header is in small letters, whatever the server wrote.
      .filter(([name]) => !needles.some((needle) => name.includes(needle.toString('latin1').toLowerCase())))
      .map(([name, value]) => [
        name,
        Array.isArray(value)
          ? value.map((each) => redactText(each, needles))
          : redactText(value ?? '', needles),
      ]),
  );
  const coding = String(headers['content-encoding'] ?? 'identity').toLowerCase();
  const hasBody = !isHead && status !== 204 && status !== 304;
  const decoder = hasBody ? decoders[coding] : undefined;
  if (hasBody && coding !== 'identity' && decoder === undefined) {
    answer.destroy();
    refuse(
      response,
      502,
      `the server answers in the coding ${printable(coding)}, in which no secret can be found`,
    );
    return;
  }
  if (decoder !== undefined) {
    delete headers['content-encoding'];
    delete headers['content-length'];
  }
  response.writeHead(status, headers);
  const parts = [answer, ...(decoder === undefined ? [] : [decoder()]), new Redactor(needles), response];
  pipeline(parts as [IncomingMessage, Redactor, ServerResponse], () => {});
}

/** A server may compress although it was asked not to. */
const decoders: Readonly<Record<string, () => Transform>> = {
  gzip: () => createGunzip(),
  'x-gzip': () => createGunzip(),
  deflate: () => createInflate(),
  br: () => createBrotliDecompress(),
};

const reasonOf = (error: Error, name: string): string =>
  error instanceof Unreachable ? error.message : `${name}: ${error.message}`;

const refuse = (response: ServerResponse, status: number, reason: string): void => {
  response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8', connection: 'close' });
  response.end(`Coppice: ${reason}.\n`);
};

const method = /^[A-Z]{3,20} /;

/** Undefined while too little was seen to tell. */
export function looksLikeHttp(bytes: Buffer): boolean | undefined {
  const start = bytes.subarray(0, 24).toString('latin1');
  if (method.test(start)) return true;
  return /^[A-Z]{0,20}$/.test(start) ? undefined : false;
}
