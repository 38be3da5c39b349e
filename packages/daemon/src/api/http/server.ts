import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { CoppiceError, type Route, type RouteName, routes } from '@coppice/protocol';
import websocket from '@fastify/websocket';
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import type { z } from 'zod';
import type { Principal } from '../../services/services.ts';
import type { ByteAnswer, Call, Handlers, ServerEvent } from './call.ts';
import { docsPage } from './docs-page.ts';
import type { HostCheck } from './host-check.ts';
import { MessageSocket } from './message-socket.ts';
import { openApiDocument } from './openapi.ts';
import { invalidInput, toCoppiceError, toProblem } from './problem.ts';
import type { RateLimiter } from './rate-limiter.ts';
import { writeEvents } from './server-sent-events.ts';

export interface HttpServerOptions {
  readonly version: string;
  readonly handlers: Handlers;
  readonly hostCheck: HostCheck;
  readonly rateLimiter: RateLimiter;
  /** Whose secret this is; undefined when nobody’s. */
  readonly authenticate: (secret: string) => Principal | undefined;
  /** The id behind an id or a name; throws not_found. */
  readonly sandboxId: (ref: string) => string;
  /** Told of every failure that was not foreseen. */
  readonly onInternalError: (error: unknown, where: string) => void;
  /** A reader of bytes who takes none for this long is taken for gone: what it reads is held for it. */
  readonly stalledReaderMs: number;
  readonly jsonBodyLimitBytes?: number;
}

type AnyCall = Call<RouteName>;
type AnyHandler = (call: AnyCall, socket?: MessageSocket) => unknown;

/** The HTTP door: it validates, asks who calls, hands over to one handler and maps the answer. */
export class HttpServer {
  readonly app: FastifyInstance;
  readonly #options: HttpServerOptions;
  readonly #templates = new WeakMap<IncomingMessage, string>();

  private constructor(app: FastifyInstance, options: HttpServerOptions) {
    this.app = app;
    this.#options = options;
  }

  static async create(options: HttpServerOptions): Promise<HttpServer> {
    const app: FastifyInstance = Fastify({
      logger: false,
      bodyLimit: options.jsonBodyLimitBytes ?? 48 * 1024 * 1024,
      routerOptions: { maxParamLength: 256 },
      // What the framework refuses before any of our hooks: malformed addresses, and parts of them that are too long.
      frameworkErrors: (error, request, reply) => server.#fail(error, request, reply),
      forceCloseConnections: true,
      keepAliveTimeout: 72_000,
    });
    const server: HttpServer = new HttpServer(app, options);
    await app.register(websocket, { options: { maxPayload: 4 * 1024 * 1024, perMessageDeflate: false } });
    app.setErrorHandler((error, request, reply) => server.#fail(error, request, reply));
    app.setNotFoundHandler((request, reply) =>
      server.#fail(
        new CoppiceError('not_found', `there is nothing at ${request.method} ${request.url.split('?')[0]}`, {
          hint: 'See /docs.',
        }),
        request,
        reply,
      ),
    );
    app.addHook('onRequest', async (request) => {
      if (request.routeOptions.url !== undefined)
        server.#templates.set(request.raw, request.routeOptions.url);
      options.hostCheck.check(request.headers.host, request.headers.origin);
    });
    app.get('/v1/openapi.json', async () => openApiDocument(options.version));
    app.get('/docs', async (_request, reply) =>
      reply.type('text/html; charset=utf-8').send(docsPage(options.version)),
    );
    await app.register(async (uploads) => {
      uploads.removeAllContentTypeParsers();
      uploads.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
      for (const [name, route] of server.#table()) if (route.upload) server.#register(uploads, name, route);
    });
    for (const [name, route] of server.#table()) if (!route.upload) server.#register(app, name, route);
    return server;
  }

  /** The path as the route was written, with names in place of what varies; for metrics, which must not grow with every id. */
  templateOf(request: IncomingMessage): string {
    return this.#templates.get(request) ?? 'none';
  }

  #table(): [RouteName, Route][] {
    return Object.entries(routes as Record<string, Route>) as [RouteName, Route][];
  }

  #register(app: FastifyInstance, name: RouteName, route: Route): void {
    const handler = this.#options.handlers[name] as unknown as AnyHandler;
    if (route.answer === 'socket') {
      app.get(
        route.path,
        { websocket: true, preValidation: async (request) => void this.#call(request, route) },
        (socket, request) => {
          const messages = new MessageSocket(socket, request.raw.socket);
          const abort = new AbortController();
          void messages.closed.then(() => abort.abort());
          const call = this.#call(request, route, abort.signal, false);
          Promise.resolve(handler(call, messages)).then(
            () => messages.close(),
            (error: unknown) => this.#failSocket(error, messages, route),
          );
        },
      );
      return;
    }
    app.route({
      method: route.method,
      url: route.path,
      handler: async (request, reply) => {
        const abort = new AbortController();
        reply.raw.on('close', () => {
          if (!reply.raw.writableFinished) abort.abort();
        });
        const call = this.#call(request, route, abort.signal);
        await this.#answer(route, handler(call), reply, abort.signal);
      },
    });
  }

  async #answer(route: Route, result: unknown, reply: FastifyReply, signal: AbortSignal): Promise<void> {
    const answer = await result;
    if (route.answer === 'events') {
      reply.hijack();
      await writeEvents(reply.raw, answer as AsyncIterable<ServerEvent>, signal);
      return;
    }
    if (route.answer === 'bytes') {
      await this.#sendBytes(answer as ByteAnswer, reply);
      return;
    }
    reply.code(route.status ?? 200);
    if (route.answer === 'text') await reply.type('text/plain; charset=utf-8').send(answer);
    else await reply.header('content-type', 'application/json; charset=utf-8').send(JSON.stringify(answer));
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

  #call(
    request: FastifyRequest,
    route: Route,
    signal = new AbortController().signal,
    counted = true,
  ): AnyCall {
    const principal = this.#principal(request, route, counted);
    const params = this.#parse(route.params, request.params, 'path');
    this.#checkScope(principal, route, params);
    const call = {
      params,
      query: this.#parse(route.query, request.query, 'query'),
      body: route.body === undefined ? undefined : this.#parse(route.body, request.body ?? {}, 'body'),
      upload: route.upload ? (request.body ?? Readable.from([])) : undefined,
      principal,
      signal,
      lastEventId: request.headers['last-event-id'],
    };
    if (route.query === undefined && Object.keys(request.query as object).length > 0) {
      throw new CoppiceError('invalid_argument', 'this call takes no query parameters');
    }
    return call as unknown as AnyCall;
  }

  #parse(schema: z.ZodType | undefined, value: unknown, where: string): unknown {
    if (schema === undefined) return undefined;
    const parsed = schema.safeParse(value);
    if (!parsed.success) throw invalidInput(parsed.error, where);
    return parsed.data;
  }

  #principal(request: FastifyRequest, route: Route, counted: boolean): Principal {
    if (route.scope === 'public') return { tokenId: '', scope: 'public' };
    const secret = /^Bearer (\S{1,256})$/.exec(request.headers.authorization ?? '')?.[1];
    const principal = secret === undefined ? undefined : this.#options.authenticate(secret);
    if (principal === undefined) {
      if (counted) this.#options.rateLimiter.take(`address:${request.ip}`);
      throw new CoppiceError(
        'unauthenticated',
        secret === undefined ? 'a token is needed' : 'this token is not valid',
      );
    }
    if (counted) this.#options.rateLimiter.take(principal.tokenId);
    return principal;
  }

  /** A sandbox's token learns nothing of others, not even whether they exist. */
  #checkScope(principal: Principal, route: Route, params: unknown): void {
    if (route.scope === 'public' || principal.scope === 'admin') return;
    const own = principal.scope.slice('sandbox:'.length);
    const ref = (params as { sandbox?: string } | undefined)?.sandbox;
    if (route.scope === 'sandbox' && ref !== undefined) {
      let id: string | undefined;
      try {
        id = this.#options.sandboxId(ref);
      } catch {
        id = undefined;
      }
      if (id === own) return;
    }
    throw new CoppiceError('forbidden', 'this token does not reach that');
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
    if (failure.code === 'unauthenticated') reply.header('www-authenticate', 'Bearer');
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
