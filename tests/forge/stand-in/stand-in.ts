import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { BareRepository, BuiltinForge, Git, GitTransport } from '@coppice/forge';
import { CoppiceError } from '@coppice/protocol';
import { openDatabase } from '../../../packages/daemon/src/db/open-database.ts';
import { State } from '../../../packages/daemon/src/db/state.ts';
import { KeyedLock } from '../../../packages/daemon/src/journal/keyed-lock.ts';
import { commitFile } from '../../../packages/daemon/test/commit-file.ts';

export interface Asked {
  readonly method: string;
  /** Below the place of the repository. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly body: Record<string, unknown> | undefined;
}

export interface Answered {
  readonly status: number;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

/** One vendor's words for what every forge does. */
export interface Dialect {
  readonly kind: 'github' | 'gitlab' | 'gitea';
  /** The path of the API of the repository `acme/app`. */
  readonly api: string;
  /** How the token must come with a call. */
  readonly login: (token: string) => Readonly<Record<string, string>>;
  /** Undefined: it knows no such call. */
  answer(asked: Asked, forge: BuiltinForge, url: string): Promise<Answered | undefined>;
  /** What it says to a failure of the forge. */
  failure(asked: Asked, error: CoppiceError): Answered;
}

export const token = 'token-of-the-test-0123456789';

/**
 * A server that speaks like a vendor's forge, over HTTP, with a repository that git itself clones and pushes to. Behind it is the
 * built-in forge, so merges, conflicts and numbers are real.
 */
export class StandIn {
  readonly url: string;
  readonly forge: BuiltinForge;
  readonly repository: BareRepository;
  /** Every call of the API that had the token, with its answer. */
  readonly seen: { readonly asked: Asked; readonly answered: Answered }[] = [];
  /** What the next calls get in place of an answer. Undefined: the answer is lost after the call was carried out. */
  readonly trouble: { readonly when: (asked: Asked) => boolean; readonly answer: Answered | undefined }[] =
    [];
  /** What the token may not do, by the beginning of `METHOD /path`. */
  readonly forbidden: string[] = [];
  readonly #server: Server;
  readonly #state: State;
  readonly #directory: string;
  readonly #dialect: Dialect;
  readonly #transport: GitTransport;

  private constructor(parts: {
    url: string;
    forge: BuiltinForge;
    repository: BareRepository;
    server: Server;
    state: State;
    directory: string;
    dialect: Dialect;
    transport: GitTransport;
  }) {
    this.url = parts.url;
    this.forge = parts.forge;
    this.repository = parts.repository;
    this.#server = parts.server;
    this.#state = parts.state;
    this.#directory = parts.directory;
    this.#dialect = parts.dialect;
    this.#transport = parts.transport;
    this.#server.on('request', (request: IncomingMessage, response: ServerResponse) => {
      this.#serve(request, response).catch(() => response.destroy());
    });
  }

  static async start(dialect: Dialect): Promise<StandIn> {
    const directory = await mkdtemp(join(tmpdir(), 'coppice-stand-in-'));
    const state = new State(openDatabase(join(directory, 'forge.db'), join(directory, 'backup')));
    const git = new Git({ maxPackBytes: 1 << 24 });
    const repository = await BareRepository.create(git, join(directory, 'app.git'), 'main');
    const record = { name: 'app', kind: 'builtin', defaultBranch: 'main', url: null, remote: null } as const;
    state.forge.insertRepository({ id: 'app', createdAtMs: 0, ...record });
    await commitFile(repository, 'main', 'README.md', 'hello\n');
    const server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const locks = new KeyedLock();
    const forge = new BuiltinForge({
      id: 'app',
      name: 'app',
      defaultBranch: 'main',
      url: `${url}/acme/app`,
      repository,
      records: state.forge,
      exclusive: (work) => locks.exclusive('app', work),
    });
    await forge.createIssue({ title: 'Dark mode', body: '', type: 'feature', critical: false });
    const transport = new GitTransport(git, { maxRequestBytes: 1 << 26, mostAtOnce: 8, timeoutMs: 60_000 });
    return new StandIn({ url, forge, repository, server, state, directory, dialect, transport });
  }

  async close(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    this.#state.close();
    await rm(this.#directory, { recursive: true });
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', this.url);
    if (url.pathname.startsWith('/acme/app.git/')) return this.#git(request, response, url);
    const { api, login } = this.#dialect;
    const say = ({ status, body, headers = {} }: Answered) => {
      response.writeHead(status, { 'content-type': 'application/json', ...headers });
      response.end(body === undefined ? '' : JSON.stringify(body));
    };
    const isKnown = Object.entries(login(token)).every(([name, value]) => request.headers[name] === value);
    if (!isKnown) return say({ status: 401, body: { message: 'Bad credentials' } });
    if (!url.pathname.startsWith(api)) return say({ status: 404, body: { message: 'Not Found' } });
    let text = '';
    for await (const chunk of request) text += String(chunk);
    const asked: Asked = {
      method: request.method ?? 'GET',
      path: url.pathname.slice(api.length),
      query: url.searchParams,
      body: text === '' ? undefined : (JSON.parse(text) as Record<string, unknown>),
    };
    const at = this.trouble.findIndex(({ when }) => when(asked));
    const [trouble] = at === -1 ? [] : this.trouble.splice(at, 1);
    if (trouble?.answer !== undefined) return say(trouble.answer);
    if (this.forbidden.some((each) => `${asked.method} ${asked.path}`.startsWith(each)))
      return say({ status: 403, body: { message: 'Resource not accessible by personal access token' } });
    const answered = await this.#answer(asked);
    this.seen.push({ asked, answered });
    if (trouble !== undefined) return void response.destroy();
    say(answered);
  }

  async #answer(asked: Asked): Promise<Answered> {
    try {
      const answered = await this.#dialect.answer(asked, this.forge, this.url);
      return answered ?? { status: 404, body: { message: 'Not Found' } };
    } catch (error) {
      if (error instanceof CoppiceError) return this.#dialect.failure(asked, error);
      throw error;
    }
  }

  async #git(request: IncomingMessage, response: ServerResponse, url: URL): Promise<void> {
    const [, password] = Buffer.from(request.headers.authorization?.slice('Basic '.length) ?? '', 'base64')
      .toString()
      .split(':');
    if (password !== token) return void response.writeHead(401, { 'www-authenticate': 'Basic' }).end();
    const name = url.pathname.slice('/acme/app.git/'.length);
    const service = (name === 'info/refs' ? url.searchParams.get('service') : name) as 'git-upload-pack';
    const asked = {
      directory: this.repository.directory,
      service,
      protocol: request.headers['git-protocol'] as string | undefined,
      caller: 'test',
      signal: new AbortController().signal,
    };
    const what = name === 'info/refs' ? 'advertisement' : 'result';
    response.writeHead(200, {
      'content-type': `application/x-${service}-${what}`,
      'cache-control': 'no-cache',
    });
    const bytes =
      name === 'info/refs'
        ? this.#transport.advertise(asked)
        : this.#transport.answer(asked, request, request.headers['content-encoding']);
    await pipeline(Readable.from(bytes), response);
  }
}
