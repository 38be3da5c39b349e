import { rmSync } from 'node:fs';
import { chmod, rename, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { CoppiceError } from '@coppice/protocol';
import type { Config } from './config/config.ts';
import { affordableConnections } from './config/descriptors.ts';
import type { Home } from './config/home.ts';
import type { Daemon } from './daemon.ts';
import { Calls } from './doors/calls.ts';
import { Connections } from './doors/connections.ts';
import { Gate } from './doors/gate.ts';
import { registerGit } from './doors/git/register-git.ts';
import { createHandlers } from './doors/handlers.ts';
import { HostCheck } from './doors/http/host-check.ts';
import { PageFiles } from './doors/http/page-files.ts';
import { registerPage } from './doors/http/register-page.ts';
import { HttpServer, httpTimeouts } from './doors/http/server.ts';
import { registerMcp } from './doors/mcp/register-mcp.ts';
import { toProblem } from './doors/problem.ts';
import { dropUnreadRest } from './doors/unread-rest.ts';
import type { Log } from './host/log.ts';
import { PageSessions } from './tokens/page-sessions.ts';
import { RateLimiter } from './tokens/rate-limiter.ts';
import { version } from './version.ts';

export interface DaemonServerOptions {
  readonly daemon: Daemon;
  readonly home: Home;
  readonly config: Config;
  /** Of the file that the configuration was read from. */
  readonly configDigest: string;
  readonly log: Log;
}

/** How long callers have to notice that the daemon stops. */
const closeGraceMs = 500;

/** Where the daemon listens: a port of the loopback and a socket in the home, the same door behind both. */
export class DaemonServer {
  readonly url: string;
  readonly #http: HttpServer;
  readonly #local: Server;
  readonly #home: Home;
  readonly #connections: readonly Connections[];

  private constructor(
    url: string,
    http: HttpServer,
    local: Server,
    home: Home,
    connections: readonly Connections[],
  ) {
    this.url = url;
    this.#http = http;
    this.#local = local;
    this.#home = home;
    this.#connections = connections;
  }

  static async listen({
    daemon,
    home,
    config,
    configDigest,
    log,
  }: DaemonServerOptions): Promise<DaemonServer> {
    const { services } = daemon;
    const { limits } = config;
    const onInternalError = (error: unknown, where: string) =>
      log.error({ err: error, where }, 'a call failed unexpectedly');
    const gate = new Gate({
      rateLimiter: new RateLimiter({ perSecond: limits.requests_per_s, burst: limits.burst }),
      authenticate: (secret, cookie) =>
        PageSessions.isKey(secret)
          ? services.pageSessions.authenticate(secret, cookie)
          : services.tokens.authenticate(secret),
      sandbox: (ref) => services.sandboxes.find(ref),
      snapshot: (ref) => services.snapshots.find(ref),
      run: (ref) => services.runs.belonging(ref),
      isTried: (projectId) => services.projects.finder.has(projectId),
    });
    const calls = new Calls(gate, createHandlers(services));
    const places = affordableConnections(limits.connections);
    const connections = {
      network: new Connections(places),
      home: new Connections(places),
      inside: new Connections(places),
    };
    const requestTimeoutMs = limits.request_timeout_s * 1000;
    const http = await HttpServer.create({
      version,
      gate,
      calls,
      hostCheck: new HostCheck(config.allowed_hosts),
      connections,
      requestTimeoutMs,
      stalledReaderMs: limits.stalled_reader_s * 1000,
      stalledSenderMs: limits.stalled_sender_s * 1000,
      onInternalError,
    });
    await registerMcp(http, {
      services,
      calls,
      version,
      transferDir: config.transfer_dir ?? home.transferDir,
      onInternalError,
    });
    await registerGit(http, {
      forge: services.forge,
      gate,
      stalledSenderMs: limits.stalled_sender_s * 1000,
      stalledReaderMs: limits.stalled_reader_s * 1000,
    });
    registerPage(http, PageFiles.find(import.meta.dirname), services.pageSessions);
    connections.network.watch(http.app.server);
    const url = await http.app.listen({ ...config.listen }).catch((cause: NodeJS.ErrnoException) => {
      if (cause.code !== 'EADDRINUSE') throw cause;
      throw new CoppiceError(
        'in_use',
        `${config.listen.host}:${config.listen.port} is taken by another program`,
        {
          hint: 'Choose another: `coppice up --port N`, or listen.port in config.json; 0 takes any that is free.',
          cause,
        },
      );
    });
    services.forge.servedAt(url);
    http.app.server.on('request', (request: IncomingMessage, response: ServerResponse) => {
      const beganMs = performance.now();
      dropUnreadRest(request, response);
      response.once('close', () => {
        daemon.observeRequest(
          { method: request.method ?? '', route: http.templateOf(request) },
          response.statusCode,
          (performance.now() - beganMs) / 1000,
        );
      });
    });
    const inside = createServer(httpTimeouts(requestTimeoutMs));
    // How often a sandbox may connect is bounded, and so is what it may ask for.
    inside.maxRequestsPerSocket = 1;
    connections.inside.watch(inside);
    inside.on('request', (request: IncomingMessage, response: ServerResponse) => {
      if (request.url?.startsWith('/v1/run/')) http.app.server.emit('request', request, response);
      else refuseOutside(response);
    });
    daemon.insideDoor.serve((connection) => inside.emit('connection', connection));
    const local = createServer(httpTimeouts(requestTimeoutMs));
    connections.home.watch(local);
    for (const event of ['request', 'upgrade'] as const)
      local.on(event, (...parts: unknown[]) => http.app.server.emit(event, ...parts));
    rmSync(home.socketFile, { force: true });
    await new Promise<void>((resolve, reject) => {
      local.once('error', reject);
      local.listen(home.socketFile, resolve);
    });
    await chmod(home.socketFile, 0o600);
    const server = new DaemonServer(url, http, local, home, Object.values(connections));
    await server.#announce(configDigest, daemon.notices);
    return server;
  }

  async close(): Promise<void> {
    rmSync(this.#home.daemonFile, { force: true });
    this.#local.closeAllConnections();
    const localClosed = new Promise((resolve) => this.#local.close(resolve));
    // A server by itself would wait for those that became WebSockets.
    const timer = setTimeout(() => {
      for (const connections of this.#connections) connections.destroyAll();
    }, closeGraceMs);
    await Promise.all([localClosed, this.#http.app.close()]);
    clearTimeout(timer);
    rmSync(this.#home.socketFile, { force: true });
  }

  /** Whoever reads the file finds a daemon that listens. */
  async #announce(configDigest: string, notices: readonly string[]): Promise<void> {
    const { daemonFile, socketFile } = this.#home;
    const text = JSON.stringify({
      pid: process.pid,
      url: this.url,
      socket: socketFile,
      version,
      config_digest: configDigest,
      notices,
    });
    await writeFile(`${daemonFile}.new`, `${text}\n`, { mode: 0o600 });
    await rename(`${daemonFile}.new`, daemonFile);
  }
}

/** The door in a sandbox leads to its own run, whatever token is shown. */
const refuseOutside = (response: ServerResponse): void => {
  const problem = toProblem(
    new CoppiceError('not_found', 'from inside a sandbox only calls below /v1/run/ are served', {
      hint: 'Run `coppice-agent help` in the sandbox.',
    }),
  );
  response
    .writeHead(problem.status, { 'content-type': 'application/problem+json' })
    .end(JSON.stringify(problem));
};
