import { type IncomingMessage, request as plainRequest, type ServerResponse } from 'node:http';
import { request as tlsRequest } from 'node:https';
import { pipeline } from 'node:stream/promises';
import { rootCertificates } from 'node:tls';
import { CoppiceError } from '@coppice/protocol';
import { z } from 'zod';
import { readPush, refusalOfPush, refused } from '../egress/git-rules.ts';
import { Redactor, redactText } from '../secrets/redactor.ts';
import { needlesOf } from '../secrets/secret-keeper.ts';
import type { Secrets } from '../secrets/secrets.ts';

const placeSchema = z.url({ protocol: /^https?$/ }).max(2000);

/** A repository of a forge elsewhere, and what the forge knows us by. */
const loginSchema = z.strictObject({
  kind: z.enum(['github', 'gitlab', 'gitea']),
  /** Where the API of this one repository is. */
  api: placeSchema,
  /** Where git finds it, without `/info/refs`. */
  git: placeSchema,
  token: z.string().regex(/^[\x21-\x7e]{1,4096}$/),
});
type Login = z.output<typeof loginSchema>;

const callSchema = z.strictObject({
  method: z.enum(['GET', 'POST', 'PATCH', 'PUT', 'DELETE']),
  path: z.string().max(4000),
  query: z.record(z.string(), z.string()).default({}),
  body: z.record(z.string(), z.unknown()).optional(),
});

const answerMs = 30_000;
const largestAnswer = 16 * 1024 * 1024;
const prefix = 'forge/';
const told = [
  'retry-after',
  'x-ratelimit-remaining',
  'x-ratelimit-reset',
  'ratelimit-remaining',
  'ratelimit-reset',
];
const gitPath = /^\/(info\/refs|git-upload-pack|git-receive-pack)$/;
const gitHeaders = [
  'content-type',
  'content-encoding',
  'content-length',
  'accept',
  'git-protocol',
  'user-agent',
];

/**
 * Logins to forges elsewhere, sealed like every secret. The daemon names a repository and what it wants of it; the token is put in here and
 * goes to the place of that repository alone: no path leads out of it, no redirect is followed, and a push reaches the one branch that
 * it is for.
 */
export class ForgeRelay {
  readonly #secrets: Secrets;
  readonly #trust: readonly string[];

  constructor(secrets: Secrets, trust: readonly string[]) {
    this.#secrets = secrets;
    this.#trust = trust;
  }

  set(id: string, body: unknown): void {
    this.#secrets.set(prefix + id, JSON.stringify(loginSchema.parse(body)));
  }

  remove(id: string): void {
    this.#secrets.remove(prefix + id);
  }

  ids(): string[] {
    return this.#secrets.hidden(prefix);
  }

  /** One call of the API. */
  async call(id: string, input: unknown): Promise<object> {
    const { method, path, query, body } = callSchema.parse(input);
    const login = this.#login(id);
    const url = below(login.api, path);
    url.search = new URLSearchParams(query).toString();
    const text = body === undefined ? undefined : JSON.stringify(body);
    const answer = await this.#send(
      login,
      url,
      method,
      {
        accept: login.kind === 'github' ? 'application/vnd.github+json' : 'application/json',
        'user-agent': 'coppice',
        authorization: `${login.kind === 'gitea' ? 'token' : 'Bearer'} ${login.token}`,
        ...(login.kind === 'github' ? { 'x-github-api-version': '2022-11-28' } : {}),
        ...(text === undefined
          ? {}
          : { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(text)) }),
      },
      (outgoing) => outgoing.end(text),
    );
    const plain = redactText((await read(answer)).toString('latin1'), needles(login));
    return {
      status: answer.statusCode ?? 502,
      headers: Object.fromEntries(
        told.map((name) => [name, answer.headers[name]]).filter(([, value]) => typeof value === 'string'),
      ),
      body: parsed(Buffer.from(plain, 'latin1').toString('utf8')),
    };
  }

  /** One request of git itself: what it may push to stands in a header that only the daemon sends. */
  async git(id: string, request: IncomingMessage, response: ServerResponse, path: string): Promise<void> {
    const login = this.#login(id);
    const [, name = ''] = gitPath.exec(path.split('?')[0]!) ?? [];
    if (name === '') throw new CoppiceError('forbidden', `${path.slice(0, 100)} is no request of git`);
    const url = new URL(`${login.git}${path}`);
    const service = name === 'info/refs' ? url.searchParams.get('service') : name;
    const branch = request.headers['x-coppice-branch'];
    const isPush = service === 'git-receive-pack';
    if (isPush && typeof branch !== 'string') throw new CoppiceError('forbidden', 'this is no time to push');
    let head: Buffer | undefined;
    if (isPush && name !== 'info/refs') {
      const push = await readPush(request);
      const others = refused(push.refs, [String(branch)]);
      if (others.length > 0) {
        response.writeHead(200, { 'content-type': 'application/x-git-receive-pack-result' });
        response.end(refusalOfPush(push, 'not this branch', `Coppice: this push is for ${branch} alone.`));
        return;
      }
      head = push.head;
    }
    const headers = Object.fromEntries(
      gitHeaders.flatMap((each) =>
        request.headers[each] === undefined ? [] : [[each, String(request.headers[each])]],
      ),
    );
    const user = login.kind === 'github' ? 'x-access-token' : 'oauth2';
    const basic = Buffer.from(`${user}:${login.token}`).toString('base64');
    const answer = await this.#send(
      login,
      url,
      request.method === 'POST' ? 'POST' : 'GET',
      { ...headers, 'accept-encoding': 'identity', authorization: `Basic ${basic}` },
      (outgoing) => {
        if (head !== undefined) outgoing.write(head);
        pipeline(request, outgoing).catch(() => outgoing.destroy());
      },
    );
    response.writeHead(answer.statusCode ?? 502, {
      'content-type': answer.headers['content-type'] ?? 'application/octet-stream',
      'cache-control': 'no-cache',
    });
    await pipeline(answer, new Redactor(needles(login)), response);
  }

  #login(id: string): Login {
    return loginSchema.parse(JSON.parse(this.#secrets.value(prefix + id)));
  }

  #send(
    { kind, token }: Login,
    url: URL,
    method: string,
    headers: Record<string, string>,
    write: (outgoing: ReturnType<typeof plainRequest>) => void,
  ): Promise<IncomingMessage> {
    const isTls = url.protocol === 'https:';
    return new Promise((resolve, reject) => {
      const outgoing = (isTls ? tlsRequest : plainRequest)(url, {
        method,
        headers,
        agent: false,
        ...(isTls && this.#trust.length > 0 ? { ca: [...rootCertificates, ...this.#trust] } : {}),
      });
      outgoing.setTimeout(answerMs, () => outgoing.destroy(new Error('it sent nothing for too long')));
      outgoing.once('response', resolve);
      outgoing.once('error', (error) =>
        reject(
          new CoppiceError(
            'unavailable',
            redactText(`${kind} at ${url.host} gave no answer: ${error.message}`, [Buffer.from(token)]),
            { cause: error },
          ),
        ),
      );
      write(outgoing);
    });
  }
}

/** The address of a path that does not leave its place, however it is written. */
function below(api: string, path: string): URL {
  const url = new URL(`${api}${path}`);
  const isInside = path === '' || path.startsWith('/');
  const place = new URL(api);
  const decoded = decodeURIComponent(path);
  const climbs = /(^|\/)\.{1,2}(\/|$)/.test(decoded) || /[?#\\\x00-\x20]/.test(decoded.replaceAll('%', ''));
  if (!isInside || climbs || url.origin !== place.origin || !url.pathname.startsWith(place.pathname))
    throw new CoppiceError(
      'forbidden',
      `the path ${JSON.stringify(path.slice(0, 100))} leads out of the repository`,
    );
  return url;
}

const needles = ({ kind, token }: Login): Buffer[] =>
  needlesOf(token, { place: { kind: 'basic', user: kind === 'github' ? 'x-access-token' : 'oauth2' } });

async function read(answer: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > largestAnswer) throw new CoppiceError('too_large', 'the forge answers with more than 16 MiB');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

const parsed = (text: string): unknown => {
  try {
    return text === '' ? null : JSON.parse(text);
  } catch {
    return text.slice(0, 500);
  }
};
