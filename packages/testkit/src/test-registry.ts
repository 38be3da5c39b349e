import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { createSign, randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);
const program = fileURLToPath(
  new URL('../../../.tools/docker-registry/usr/bin/docker-registry', import.meta.url),
);

/** Why tests with a real registry cannot run here; undefined where they can. */
export const registryRefusal = (): string | undefined =>
  existsSync(program) ? undefined : 'there is no docker-registry: run scripts/setup/38-test-registry.sh';

/** Who is let in. */
export const registryLogin = { username: 'tester', password: 'a word' } as const;
const htpasswd = 'tester:$2y$05$nnswu.xb3a.8I6EKrJzseeaBUFM8LjzO6CunlkN5Ah7s5b32X0646\n';

export interface TestRegistryOptions {
  /** `token`: a service of its own hands out tokens for the password, as public registries do. */
  readonly login?: 'none' | 'basic' | 'token';
  readonly tls?: boolean;
}

/** Debian's docker-registry on a free port of the loopback, with storage of its own. */
export class TestRegistry {
  readonly host: string;
  /** The certificate that it shows, where it speaks TLS. */
  readonly certificateFile: string | undefined;
  /** The scopes that tokens were asked for, and by whom. */
  readonly tokenCalls: { scope: string; username: string | undefined }[];
  readonly #directory: string;
  readonly #child: ChildProcess;
  readonly #tokens: Server | undefined;

  private constructor(parts: {
    host: string;
    directory: string;
    child: ChildProcess;
    certificateFile: string | undefined;
    tokens: Server | undefined;
    tokenCalls: TestRegistry['tokenCalls'];
  }) {
    this.host = parts.host;
    this.certificateFile = parts.certificateFile;
    this.tokenCalls = parts.tokenCalls;
    this.#directory = parts.directory;
    this.#child = parts.child;
    this.#tokens = parts.tokens;
  }

  static async start({ login = 'none', tls = false }: TestRegistryOptions = {}): Promise<TestRegistry> {
    const directory = await mkdtemp(join(tmpdir(), 'coppice-registry-'));
    const certificateFile = tls ? await makeCertificate(directory) : undefined;
    const tokenCalls: TestRegistry['tokenCalls'] = [];
    const tokens = login === 'token' ? await TokenService.start(directory, tokenCalls) : undefined;
    await writeFile(join(directory, 'htpasswd'), htpasswd);
    const config = {
      version: '0.1',
      log: { level: 'info', accesslog: { disabled: true } },
      storage: { filesystem: { rootdirectory: join(directory, 'data') }, delete: { enabled: true } },
      http: {
        addr: '127.0.0.1:0',
        secret: randomBytes(16).toString('hex'),
        ...(certificateFile === undefined
          ? {}
          : { tls: { certificate: certificateFile, key: join(directory, 'key.pem') } }),
      },
      ...(login === 'basic'
        ? { auth: { htpasswd: { realm: 'test', path: join(directory, 'htpasswd') } } }
        : {}),
      ...(tokens === undefined ? {} : { auth: { token: tokens.registryConfig } }),
    };
    // YAML holds JSON.
    await writeFile(join(directory, 'config.yml'), JSON.stringify(config));
    const child = spawn(program, ['serve', join(directory, 'config.yml')], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const port = await listeningPort(child);
    const host = `127.0.0.1:${port}`;
    return new TestRegistry({ host, directory, child, certificateFile, tokens: tokens?.server, tokenCalls });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = new Promise((resolve) => this.#child.once('close', resolve));
    this.#child.kill('SIGKILL');
    await ended;
    this.#tokens?.close();
    this.#tokens?.closeAllConnections();
    await rm(this.#directory, { recursive: true, force: true });
  }
}

/** It says where it listens in its log. */
function listeningPort(child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    let log = '';
    const hear = (chunk: Buffer): void => {
      log += chunk.toString('utf8');
      const port = /listening on 127\.0\.0\.1:(\d+)/.exec(log)?.[1];
      if (port !== undefined) resolve(Number(port));
    };
    child.stdout?.on('data', hear);
    child.stderr?.on('data', hear);
    child.once('close', () => reject(new Error(`docker-registry ended: ${log}`)));
  });
}

async function makeCertificate(directory: string): Promise<string> {
  const certificate = join(directory, 'certificate.pem');
  const request = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=localhost'];
  const names = ['-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'];
  await run('openssl', [...request, ...names, '-keyout', join(directory, 'key.pem'), '-out', certificate]);
  return certificate;
}

/** Hands out the signed tokens that the registry takes, for what the login may do. */
class TokenService {
  readonly server: Server;
  readonly registryConfig: object;

  private constructor(server: Server, registryConfig: object) {
    this.server = server;
    this.registryConfig = registryConfig;
  }

  static async start(directory: string, calls: TestRegistry['tokenCalls']): Promise<TokenService> {
    const bundle = await makeCertificate(directory);
    const key = await readFile(join(directory, 'key.pem'), 'utf8');
    const chain = (await readFile(bundle, 'utf8')).replace(/-----[A-Z ]+-----|\s/g, '');
    const server = createServer((request, response) => {
      const url = new URL(request.url ?? '/', 'http://localhost');
      const [username, password] = Buffer.from(
        (request.headers.authorization ?? '').replace(/^Basic /, ''),
        'base64',
      )
        .toString('utf8')
        .split(':');
      const known = username === registryLogin.username && password === registryLogin.password;
      calls.push({
        scope: url.searchParams.get('scope') ?? '',
        username: username === '' ? undefined : username,
      });
      if (request.headers.authorization !== undefined && !known) {
        response.writeHead(401).end('{}');
        return;
      }
      const access = known ? accessOf(url.searchParams.getAll('scope')) : [];
      const now = Math.floor(Date.now() / 1000);
      const claims = {
        iss: 'test',
        sub: username,
        aud: 'test-registry',
        exp: now + 300,
        nbf: now - 10,
        iat: now,
        jti: randomBytes(8).toString('hex'),
        access,
      };
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ token: sign(claims, key, chain) }));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    return new TokenService(server, {
      realm: `http://127.0.0.1:${port}/token`,
      service: 'test-registry',
      issuer: 'test',
      rootcertbundle: bundle,
    });
  }
}

const accessOf = (scopes: readonly string[]): object[] =>
  scopes
    .filter((scope) => scope !== '')
    .map((scope) => {
      const [type, name, actions = ''] = scope.split(':');
      return { type, name, actions: actions.split(',') };
    });

function sign(claims: object, key: string, chain: string): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const body = `${part({ typ: 'JWT', alg: 'RS256', x5c: [chain] })}.${part(claims)}`;
  return `${body}.${createSign('RSA-SHA256').update(body).sign(key).toString('base64url')}`;
}
