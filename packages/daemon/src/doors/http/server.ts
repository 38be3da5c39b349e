import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { CoppiceError, documentBytes, type Route, type RouteName, routes } from '@coppice/protocol';
import websocket from '@fastify/websocket';
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import type { Principal } from '../../services.ts';
import type { ByteAnswer, ServerEvent } from '../call.ts';
import type { Admitted, Calls } from '../calls.ts';
import type { Connections } from '../connections.ts';
import { Documents } from '../documents.ts';
import type { Gate, Origin } from '../gate.ts';
import { patientUpload } from '../patient-upload.ts';
import { toCoppiceError, toProblem } from '../problem.ts';
import { credentialsOf } from './credentials.ts';
import { docsPage } from './docs-page.ts';
import type { HostCheck } from './host-check.ts';
import { MessageSocket } from './message-socket.ts';
import { openApiDocument } from './openapi.ts';
import { writeEvents } from './server-sent-events.ts';

export interface HttpServerOptions {
  readonly version: string;
  readonly gate: Gate;
  readonly calls: Calls;
  readonly hostCheck: HostCheck;
  /** Of the port, which strangers can reach, of the socket in the home, and of those in sandboxes. */
  readonly connections: Readonly<Record<Origin, Connections>>;
  /** Told of every failure that was not foreseen. */
  readonly onInternalError: (error: unknown, where: string) => void;
  /** How long the head of a request may take to arrive, and how long a document. */
  readonly requestTimeoutMs: number;
  /** A reader of bytes who takes none for this long is taken for gone: what it reads is held for it. */
  readonly stalledReaderMs: number;
  /** The same for a sender of bytes. */
  readonly stalledSenderMs: number;
}

/** What the door has to know of a route before it reads anything but the head of a request. */
interface DoorConfig {
  /**
   * `none`: nobody needs to be known; `page`: the same, and nobody is counted; `token`: whoever has one; `git`: the same, as a
   * password; else what the table of routes says of it.
   *
   * The page lies in memory and the code of a link cannot be guessed, so neither needs a limit. With the limit that all strangers
   * share, one of them could keep everybody from signing in.
   */
  readonly entry: 'none' | 'page' | 'token' | 'git' | RouteName;
  readonly documentBytes: number;
}

declare module 'fastify' {
  interface FastifyContextConfig {
    door?: DoorConfig;
  }
}

const largeAnswerBytes = 65_536;
/** How long a connection may lie idle between two requests. */
const keepAliveMs = 72_000;

/** What the server of the home's own socket needs too. Uploads have deadlines of their own, which progress moves. */
export const httpTimeouts = (requestTimeoutMs: number) => ({
  headersTimeout: requestTimeoutMs,
  requestTimeout: 0,
  keepAliveTimeout: keepAliveMs,
  connectionsCheckingInterval: 1_000,
  // Peers that vanished without a word are noticed.
  keepAlive: true,
  keepAliveInitialDelay: keepAliveMs,
});

/** Git knows passwords: the token is one, whatever the name beside it. */
const passwordAsBearer = (authorization: string | undefined): string | undefined => {
  const pair = /^Basic ([A-Za-z0-9+/=]{1,1024})$/.exec(authorization ?? '')?.[1];
  if (pair === undefined) return authorization;
  const text = Buffer.from(pair, 'base64').toString('utf8');
  return `Bearer ${text.slice(text.indexOf(':') + 1)}`;
};

/** The page at addresses of its own, which no route has. */
export interface PagesElsewhere {
  has(request: FastifyRequest): boolean;
  serve(request: FastifyRequest, reply: FastifyReply): void;
}

/** A caller that was let in, and the answer that is to come. */
interface Entered {
  /** Undefined where nobody needs to be known. */
  readonly principal: Principal | undefined;
  readonly response: ServerResponse;
  /** Undefined where the table of routes has nothing to say. */
  readonly admitted: Admitted | undefined;
}

/** A body that was refused while it was read; thrown where the answer is made, so that the caller gets to read it. */
class RefusedBody {
  readonly reason: Error;

  constructor(reason: Error) {
    this.reason = reason;
  }
}

/** The HTTP door: it asks who calls before it reads a body, hands over to one handler and maps the answer. */
export class HttpServer {
  readonly app: FastifyInstance;
  readonly #options: HttpServerOptions;
  readonly #documents: Documents;
  readonly #templates = new WeakMap<IncomingMessage, string>();
  readonly #entered = new WeakMap<FastifyRequest, Entered>();
  #pages: PagesElsewhere | undefined;

  private constructor(app: FastifyInstance, options: HttpServerOptions) {
    this.app = app;
    this.#options = options;
    this.#documents = new Documents({ gate: options.gate, deadlineMs: options.requestTimeoutMs });
  }

  static async create(options: HttpServerOptions): Promise<HttpServer> {
    const app: FastifyInstance = Fastify({
      logger: false,
      routerOptions: { maxParamLength: 256 },
      // What the framework refuses before any of our hooks: malformed addresses, and parts of them that are too long.
      frameworkErrors: (error, request, reply) => server.#fail(error, request, reply),
      forceCloseConnections: true,
      keepAliveTimeout: keepAliveMs,
      http: httpTimeouts(options.requestTimeoutMs),
    });
    const server: HttpServer = new HttpServer(app, options);
    await app.register(websocket, { options: { maxPayload: 4 * 1024 * 1024, perMessageDeflate: false } });
    app.setErrorHandler((error, request, reply) => server.#fail(error, request, reply));
    app.setNotFoundHandler((request, reply) => {
      if (server.#pages?.has(request)) {
        server.#pages.serve(request, reply);
        return;
      }
      server.#fail(
        new CoppiceError('not_found', `there is nothing at ${request.method} ${request.url.split('?')[0]}`, {
          hint: 'See /docs.',
        }),
        request,
        reply,
      );
    });
    app.addHook('onRequest', (request, reply) => server.#enter(request, reply.raw));
    server.#parseDocuments();
    const page = { config: { door: { entry: 'none', documentBytes: 0 } } } as const;
    const openApi = JSON.stringify(openApiDocument(options.version));
    const docs = docsPage(options.version);
    app.get('/v1/openapi.json', page, async (_request, reply) =>
      reply.type('application/json; charset=utf-8').send(openApi),
    );
    app.get('/docs', page, async (_request, reply) => reply.type('text/html; charset=utf-8').send(docs));
    await app.register(async (uploads) => {
      uploads.removeAllContentTypeParsers();
      uploads.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
      for (const [name, route] of server.#table()) if (route.upload) server.#register(uploads, name, route);
    });
    for (const [name, route] of server.#table()) if (!route.upload) server.#register(app, name, route);
    return server;
  }

  /** Serves addresses that no route has. */
  servePagesElsewhere(pages: PagesElsewhere): void {
    this.#pages = pages;
  }

  /** The path as the route was written, with names in place of what varies; for metrics, which must not grow with every id. */
  templateOf(request: IncomingMessage): string {
    return this.#templates.get(request) ?? 'none';
  }

  /** Who makes this call; only for routes that ask for a token. */
  principalOf(request: FastifyRequest): Principal {
    const principal = this.#entered.get(request)?.principal;
    if (principal === undefined) throw new Error('nobody was asked who this is');
    return principal;
  }

  /** The document in the body. */
  documentOf(request: FastifyRequest): unknown {
    if (request.body instanceof RefusedBody) throw request.body.reason;
    return request.body;
  }

  #table(): [RouteName, Route][] {
    return Object.entries(routes as Record<string, Route>) as [RouteName, Route][];
  }

  /** All that is decided before a byte of the body is read. */
  async #enter(request: FastifyRequest, response: ServerResponse): Promise<void> {
    const { gate, calls, hostCheck, connections } = this.#options;
    const { url, config } = request.routeOptions;
    if (url !== undefined) this.#templates.set(request.raw, url);
    hostCheck.check(request.headers.host, request.headers.origin);
    const { socket } = request.raw;
    const origin = connections.home.had(socket)
      ? 'home'
      : connections.inside.had(socket)
        ? 'inside'
        : 'network';
    const elsewhere = this.#pages?.has(request) ? 'page' : 'none';
    const entry = request.is404 ? elsewhere : config.door?.entry;
    if (entry === undefined) throw new Error(`the route ${url} does not say who may call it`);
    if (entry === 'page') return;
    if (entry === 'none') {
      gate.enterUnknown(origin);
      return;
    }
    const byToken = entry === 'token' || entry === 'git';
    const isPublic = !byToken && routes[entry].scope === 'public';
    const { authorization } = request.headers;
    const principal = isPublic
      ? undefined
      : await gate.enter(
          credentialsOf(request.raw, entry === 'git' ? passwordAsBearer(authorization) : authorization),
          origin,
        );
    if (principal === undefined) gate.enterUnknown(origin);
    else connections[origin].begin(request.raw, response, principal.tokenId);
    const admitted = byToken ? undefined : await calls.admit(principal, entry, request.params, request.query);
    if (request.ws && (byToken || routes[entry].answer !== 'socket'))
      throw new CoppiceError('invalid_argument', 'this call is not available over WebSocket');
    this.#entered.set(request, { principal, response, admitted });
  }

  #parseDocuments(): void {
    const { app } = this;
    const parse = app.getDefaultJsonParser('error', 'error') as unknown as (
      request: FastifyRequest,
      text: string,
      done: (error: Error | null, body?: unknown) => void,
    ) => void;
    app.removeAllContentTypeParsers();
    app.addContentTypeParser('application/json', (request, _payload, done) => {
      const { principal, response } = this.#entered.get(request) ?? {};
      if (principal === undefined || response === undefined) {
        done(null, undefined);
        return;
      }
      const reading = {
        request: request.raw,
        response,
        principal,
        limitBytes: request.routeOptions.config.door?.documentBytes ?? 0,
      };
      const settle = (error: Error | null, body?: unknown): void =>
        done(null, error === null ? body : new RefusedBody(error));
      this.#documents.read(reading, (error, text) => {
        if (error === null) parse(request, text, settle);
        else settle(error);
      });
    });
  }

  #register(app: FastifyInstance, name: RouteName, route: Route): void {
    const { calls } = this.#options;
    const config = { door: { entry: name, documentBytes: route.bodyBytes ?? documentBytes.usual } };
    const admitted = (request: FastifyRequest): Admitted => this.#entered.get(request)!.admitted!;
    if (route.answer === 'socket') {
      app.get(route.path, { websocket: true, config }, (socket, request) => {
        const messages = new MessageSocket(socket, request.raw.socket, this.#options.requestTimeoutMs);
        const abort = new AbortController();
        void messages.closed.then(() => abort.abort());
        const rest = { signal: abort.signal };
        Promise.resolve(calls.run(admitted(request), rest, messages)).then(
          () => messages.close(),
          (error: unknown) => this.#failSocket(error, messages, route),
        );
      });
      return;
    }
    app.route({
      method: route.method,
      url: route.path,
      config,
      handler: async (request, reply) => {
        const abort = new AbortController();
        reply.raw.on('close', () => {
          if (!reply.raw.writableFinished) abort.abort();
        });
        if (reply.raw.destroyed) abort.abort();
        const body = this.documentOf(request);
        const answer = calls.run(admitted(request), {
          signal: abort.signal,
          lastEventId: request.headers['last-event-id'] as string | undefined,
          ...(route.upload && body instanceof Readable
            ? { upload: patientUpload(body, this.#options.stalledSenderMs) }
            : { body }),
        });
        await this.#answer(route, answer, reply, abort.signal);
      },
    });
  }

  async #answer(route: Route, result: unknown, reply: FastifyReply, signal: AbortSignal): Promise<void> {
    const answer = await result;
    if (route.answer === 'events') {
      reply.hijack();
      await writeEvents(reply.raw, answer as AsyncIterable<ServerEvent>, {
        signal,
        stalledReaderMs: this.#options.stalledReaderMs,
      });
      return;
    }
    if (route.answer === 'bytes') {
      await this.#sendBytes(answer as ByteAnswer, reply);
      return;
    }
    reply.code(route.status ?? 200);
    const text = route.answer === 'text' ? (answer as string) : JSON.stringify(answer);
    const type = route.answer === 'text' ? 'text/plain' : 'application/json';
    this.#letGo(reply.raw, text.length);
    await reply.header('content-type', `${type}; charset=utf-8`).send(text);
  }

  /** A large answer is held for its reader, but not for one who does not take it. Small ones lie in the kernel. */
  #letGo(response: ServerResponse, bytes: number): void {
    if (bytes < largeAnswerBytes) return;
    const timer = setTimeout(() => response.destroy(), this.#options.stalledReaderMs);
    response.once('close', () => clearTimeout(timer));
  }

  async #sendBytes(
    { bytes, contentType, sizeBytes, fileName }: ByteAnswer,
    reply: FastifyReply,
  ): Promise<void> {
    const iterator = bytes[Symbol.asyncIterator]();
    // The first chunk decides between an answer and a problem document.
    const first = await iterator.next();
    reply.hijack();
    reply.raw.writeHead(200, {
      'content-type': contentType,
      ...(sizeBytes === undefined ? {} : { 'content-length': sizeBytes }),
      ...(fileName === undefined ? {} : { 'content-disposition': `attachment; filename="${fileName}"` }),
    });
    const { stalledReaderMs } = this.#options;
    const stalled = () => reply.raw.destroy();
    const rest = async function* () {
      let timer: NodeJS.Timeout | undefined;
      try {
        for (let next = first; !next.done; next = await iterator.next()) {
          timer = setTimeout(stalled, stalledReaderMs);
          yield next.value;
          clearTimeout(timer);
        }
      } finally {
        clearTimeout(timer);
        await iterator.return?.();
      }
    };
    // A failure midway destroys the connection, so that a short answer is never taken for a whole one.
    await pipeline(Readable.from(rest(), { objectMode: false, highWaterMark: 1024 * 1024 }), reply.raw).catch(
      () => reply.raw.destroy(),
    );
  }

  #fail(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
    const failure = toCoppiceError(error);
    if (failure.code === 'internal')
      this.#options.onInternalError(
        failure.cause ?? failure,
        `${request.method} ${request.routeOptions.url ?? '?'}`,
      );
    const problem = toProblem(failure);
    const retryAfter = failure.details?.retry_after_s;
    if (typeof retryAfter === 'number') reply.header('retry-after', String(retryAfter));
    if (failure.code === 'unauthenticated')
      reply.header(
        'www-authenticate',
        request.routeOptions.config.door?.entry === 'git' ? 'Basic realm="coppice"' : 'Bearer',
      );
    if (request.headers.upgrade !== undefined) {
      // The connection was given up for a WebSocket that does not come to be: nobody else would close it.
      reply.header('connection', 'close');
      reply.raw.once('finish', () => request.raw.socket.destroySoon());
    }
    reply
      .code(problem.status)
      .header('content-type', 'application/problem+json')
      .send(JSON.stringify(problem));
  }

  #failSocket(error: unknown, socket: MessageSocket, route: Route): void {
    const failure = toCoppiceError(error);
    if (failure.code === 'internal') this.#options.onInternalError(failure.cause ?? failure, route.path);
    // Whoever went away before the answer was ready is told nothing.
    if (failure.code !== 'cancelled' && socket.isOpen) {
      const { code, message, hint, details } = failure;
      socket.send(JSON.stringify({ type: 'error', code, message, hint, details }));
    }
    socket.close(1011);
  }
}
