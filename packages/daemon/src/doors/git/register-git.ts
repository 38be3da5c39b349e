import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type GitService, gitServices } from '@coppice/forge';
import { CoppiceError, refSchema } from '@coppice/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { DoorServices } from '../../door-services.ts';
import type { Gate } from '../gate.ts';
import type { HttpServer } from '../http/server.ts';
import { patientUpload } from '../patient-upload.ts';

export interface RegisterGitOptions {
  readonly forge: Pick<DoorServices['forge'], 'serveGit' | 'idOf'>;
  readonly gate: Gate;
  readonly stalledSenderMs: number;
  readonly stalledReaderMs: number;
}

const noCache = { 'cache-control': 'no-cache, max-age=0, must-revalidate' };

/** Mounts git's smart protocol at /git/NAME.git, for `git clone` and `git push` with a token as the password. */
export const registerGit = async (door: HttpServer, options: RegisterGitOptions): Promise<void> => {
  const { forge, gate } = options;
  const config = { door: { entry: 'git', documentBytes: 0 } } as const;

  const serve = async (
    request: FastifyRequest,
    reply: FastifyReply,
    service: GitService,
    body?: AsyncIterable<Uint8Array>,
  ): Promise<void> => {
    const { repository } = request.params as { repository: string };
    const name = repository.replace(/\.git$/, '');
    if (!refSchema.safeParse(name).success)
      throw new CoppiceError('invalid_argument', 'this is not a valid repository name');
    const principal = door.principalOf(request);
    const onlyBranch = gate.assertMayGit(principal, await forge.idOf(name), service === 'git-receive-pack');
    const abort = new AbortController();
    reply.raw.on('close', () => abort.abort());
    const header = (key: string): string | undefined => {
      const value = request.headers[key];
      return typeof value === 'string' ? value : undefined;
    };
    const answer = forge.serveGit(name, {
      service,
      protocol: header('git-protocol'),
      onlyBranch,
      caller: principal.tokenId,
      signal: abort.signal,
      ...(body === undefined ? {} : { body, encoding: header('content-encoding') }),
    });
    const kind = body === undefined ? 'advertisement' : 'result';
    await send(answer, `application/x-${service}-${kind}`, reply, options.stalledReaderMs);
  };

  await door.app.register(async (app) => {
    app.removeAllContentTypeParsers();
    app.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
    app.get('/git/:repository/info/refs', { config }, async (request, reply) => {
      const { service, ...others } = request.query as Record<string, unknown>;
      const known = gitServices.find((each) => each === service);
      if (known === undefined || Object.keys(others).length > 0)
        throw new CoppiceError('unsupported', 'only the smart protocol of git is spoken here', {
          hint: 'Use git 1.6.6 or newer: git clone URL',
        });
      await serve(request, reply, known);
    });
    for (const service of gitServices)
      app.post(`/git/:repository/${service}`, { config }, async (request, reply) => {
        if (request.headers['content-type'] !== `application/x-${service}-request`)
          throw new CoppiceError('invalid_argument', `the content is no ${service} request`);
        const body = request.body instanceof Readable ? request.body : Readable.from([]);
        await serve(request, reply, service, patientUpload(body, options.stalledSenderMs));
      });
  });
};

/** The first bytes decide between an answer and a refusal; what breaks off later ends the connection. */
const send = async (
  answer: AsyncIterable<Uint8Array>,
  contentType: string,
  reply: FastifyReply,
  stalledReaderMs: number,
): Promise<void> => {
  const iterator = answer[Symbol.asyncIterator]();
  const first = await iterator.next();
  reply.hijack();
  reply.raw.writeHead(200, { 'content-type': contentType, ...noCache });
  // A process of git is held for who reads.
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
      await iterator.return?.(undefined);
    }
  };
  await pipeline(Readable.from(rest(), { objectMode: false }), reply.raw).catch(() => reply.raw.destroy());
};
