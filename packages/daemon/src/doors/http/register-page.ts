import { CoppiceError, type PageSession, pageCodeScheme, pageSessionPath } from '@coppice/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { DoorServices } from '../../door-services.ts';
import { cookieName, credentialsOf, isFromOwnPage } from './credentials.ts';
import type { PageFile, PageFiles } from './page-files.ts';
import type { HttpServer } from './server.ts';

/** The terminal writes style sheets of its own. Scripts come from here alone, and no text ever becomes markup. */
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');

const pageHeaders = {
  'content-security-policy': policy,
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), microphone=(), geolocation=()',
  'x-frame-options': 'DENY',
};

const send = (
  file: PageFile,
  request: FastifyRequest,
  reply: FastifyReply,
  caching: string,
): FastifyReply => {
  const asGzip = /\bgzip\b/.test(String(request.headers['accept-encoding'] ?? ''));
  reply.headers(pageHeaders).header('cache-control', caching).header('vary', 'accept-encoding');
  if (asGzip) reply.header('content-encoding', 'gzip');
  return reply.type(file.contentType).send(asGzip ? file.gzip : file.plain);
};

/** What the page is to a browser that follows a link: any address of its own, but none of the API. */
const isNavigation = ({ method, url, headers }: FastifyRequest): boolean =>
  method === 'GET' && !/^\/(v1|assets)\//.test(url) && (headers.accept ?? '').includes('text/html');

/** Serves the page to everybody, as there is nothing in it, and signs browsers in and out. */
export const registerPage = (
  door: HttpServer,
  files: PageFiles,
  sessions: DoorServices['pageSessions'],
): void => {
  const open = { config: { door: { entry: 'page', documentBytes: 0 } } } as const;
  const known = { config: { door: { entry: 'token', documentBytes: 0 } } } as const;
  const { app } = door;

  const page = (request: FastifyRequest, reply: FastifyReply): FastifyReply => {
    const index = files.get('index.html');
    if (index === undefined)
      throw new CoppiceError('unsupported', 'the page is not built', {
        hint: 'Run `scripts/build`, or bin/coppice, which does all the set-up.',
      });
    return send(index, request, reply, 'no-cache');
  };
  app.get('/', open, async (request, reply) => page(request, reply));
  door.servePagesElsewhere({ has: isNavigation, serve: page });

  // The name holds a digest of what is in it, so it never changes.
  app.get<{ Params: { name: string } }>('/assets/:name', open, async (request, reply) => {
    const { name } = request.params;
    const file = name === 'index.html' ? undefined : files.get(name);
    if (file === undefined) throw new CoppiceError('not_found', `the page has no file ${name}`);
    return send(file, request, reply, 'public, max-age=31536000, immutable');
  });

  const cookie = (request: FastifyRequest, value: string, maxAgeS: number): string => {
    const isSecure = request.headers.origin?.startsWith('https:') ?? false;
    const name = cookieName(request.headers.host);
    return `${name}=${value}; Path=/; HttpOnly; SameSite=Strict; Max-Age=${maxAgeS}${isSecure ? '; Secure' : ''}`;
  };
  app.post(pageSessionPath, open, async (request, reply) => {
    if (!isFromOwnPage(request.raw))
      throw new CoppiceError('forbidden', 'only the page of the daemon signs in here', {
        hint: 'Follow the link of `coppice open`. Programs send their token.',
      });
    const [scheme, code = ''] = (request.headers.authorization ?? '').split(' ');
    const { key, cookie: value, expiresAtMs } = await sessions.open(scheme === pageCodeScheme ? code : '');
    const maxAgeS = Math.floor((expiresAtMs - Date.now()) / 1000);
    const answer: PageSession = { key, expires_at: new Date(expiresAtMs).toISOString() };
    return reply
      .code(201)
      .header('set-cookie', cookie(request, value, maxAgeS))
      .header('cache-control', 'no-store')
      .send(answer);
  });
  app.delete(pageSessionPath, known, async (request, reply) => {
    if (door.principalOf(request).signedInUntilMs === undefined)
      throw new CoppiceError('invalid_argument', 'only a page can sign out', {
        hint: 'A token is revoked with `coppice token revoke`.',
      });
    await sessions.close(credentialsOf(request.raw).secret!);
    return reply.header('set-cookie', cookie(request, '', 0)).send({});
  });
};
