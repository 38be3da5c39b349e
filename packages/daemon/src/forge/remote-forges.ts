import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  type BareRepository,
  type Forge,
  type ForgeAnswer,
  ForgeCalls,
  GiteaForge,
  GithubForge,
  GitlabForge,
} from '@coppice/forge';
import { CoppiceError } from '@coppice/protocol';
import type { RepositoryRecord } from '../db/forge-table.ts';

/** What the gateway does for repositories elsewhere: it alone has their tokens. */
export interface ForgeGateway {
  setForge(id: string, login: object): Promise<void>;
  removeForge(id: string): Promise<void>;
  listForges(): Promise<string[]>;
  callForge(id: string, call: object, signal?: AbortSignal): Promise<ForgeAnswer>;
  relayGit(
    id: string,
    request: IncomingMessage,
    response: ServerResponse,
    path: string,
    branch: string | undefined,
  ): Promise<void>;
}

type RemoteRecord = Pick<RepositoryRecord, 'id' | 'kind' | 'url' | 'remote'>;

const homes = { github: 'https://api.github.com', gitlab: 'https://gitlab.com', gitea: '' } as const;
const gitMs = 15 * 60_000;
const gitSettings = [
  ['protocol.http.allow', 'always'],
  ['http.followRedirects', 'false'],
  ['http.lowSpeedLimit', '1'],
  ['http.lowSpeedTime', '60'],
] as const;

/** Where a repository of another forge is: for people and git, and its API. */
export function placesOf({ kind, url, remote }: RemoteRecord): {
  readonly api: string;
  readonly git: string;
} {
  if (kind === 'builtin' || remote === null)
    throw new CoppiceError('internal', 'a repository of this machine has no such place');
  const home = url ?? homes[kind];
  if (kind === 'gitlab')
    return { api: `${home}/api/v4/projects/${encodeURIComponent(remote)}`, git: `${home}/${remote}.git` };
  if (kind === 'gitea') return { api: `${home}/api/v1/repos/${remote}`, git: `${home}/${remote}.git` };
  // A server of GitHub Enterprise has its API below its own name.
  const isEnterprise = url !== null && url !== homes.github;
  const web = isEnterprise ? url.replace(/\/api\/v3$/, '') : 'https://github.com';
  return {
    api: `${isEnterprise ? `${web}/api/v3` : homes.github}/repos/${remote}`,
    git: `${web}/${remote}.git`,
  };
}

/** Repositories of GitHub, GitLab, Gitea and Forgejo, reached through the gateway. */
export class RemoteForges {
  readonly #gateway: ForgeGateway;

  constructor(gateway: ForgeGateway) {
    this.#gateway = gateway;
  }

  async register(record: RemoteRecord, token: string): Promise<void> {
    await this.#gateway.setForge(record.id, { kind: record.kind, ...placesOf(record), token });
  }

  async forget(id: string): Promise<void> {
    await this.#gateway.removeForge(id).catch((error: unknown) => {
      if (!(error instanceof CoppiceError && error.code === 'not_found')) throw error;
    });
  }

  /** Of logins whose repository was never written down, or is gone. */
  async sweep(known: ReadonlySet<string>): Promise<void> {
    for (const id of await this.#gateway.listForges()) if (!known.has(id)) await this.forget(id);
  }

  forgeOf({ id, kind, remote }: RemoteRecord): Forge {
    const calls = new ForgeCalls({
      title: `${kind} ${remote}`,
      http: ({ signal, ...call }) => this.#gateway.callForge(id, call, signal),
    });
    if (kind === 'github') return new GithubForge(calls, remote!);
    return kind === 'gitlab' ? new GitlabForge(calls) : new GiteaForge(calls);
  }

  /** The branches as they are there, into the copy that is here. */
  async fetch(id: string, copy: BareRepository, branches: readonly string[]): Promise<void> {
    const refs = branches.map((name) => `+refs/heads/${name}:refs/heads/${name}`);
    await this.#withGit(id, undefined, (url) =>
      copy.run(['fetch', '--quiet', '--no-tags', '--no-write-fetch-head', url, ...refs], network),
    );
  }

  /** A commit onto a branch, forward only: the forge refuses where somebody was faster. */
  async push(id: string, copy: BareRepository, branch: string, sha: string): Promise<void> {
    await this.#withGit(id, branch, (url) =>
      copy.run(['push', '--quiet', url, `${sha}:refs/heads/${branch}`], network),
    );
  }

  /** Git speaks to an address of this machine that holds for this one command, and has no login itself. */
  async #withGit<T>(id: string, branch: string | undefined, work: (url: string) => Promise<T>): Promise<T> {
    const place = `/${randomBytes(24).toString('hex')}`;
    const server = createServer((request, response) => {
      const url = request.url ?? '';
      if (!url.startsWith(`${place}/`)) return void response.writeHead(404).end();
      this.#gateway
        .relayGit(id, request, response, url.slice(place.length), branch)
        .catch((error: unknown) => {
          if (response.headersSent) return void response.destroy();
          response.writeHead(502, { 'content-type': 'text/plain; charset=utf-8' });
          response.end(`Coppice: ${(error as Error).message}\n`);
        });
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      return await work(`http://127.0.0.1:${(server.address() as AddressInfo).port}${place}`);
    } finally {
      server.close();
      server.closeAllConnections();
    }
  }
}

const network = { network: true, config: gitSettings, timeoutMs: gitMs };
