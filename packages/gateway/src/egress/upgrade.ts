import type { Agent, IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { request as send } from 'node:http';
import { type Duplex, pipeline } from 'node:stream';
import type { Errand } from './errand.ts';
import { forwarded } from './forwarded-headers.ts';

/** In these a client could ask the server for other names, and nobody would see it. */
const speaksOfHosts = /(?:^|[\s,])(?:h2|http|tls)/i;

/** Why a connection cannot become what the request wants; undefined where it can. */
export function refusalOfUpgrade({ headers }: IncomingMessage): string | undefined {
  if (speaksOfHosts.test(headers.upgrade ?? ''))
    return 'a connection cannot become another kind of HTTP or TLS';
  const hasBody = headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) !== 0;
  return hasBody ? 'a request that upgrades a connection has no body' : undefined;
}

/**
 * WebSockets and their like: bytes both ways, from the moment that the server agrees. Where it does not, its answer is passed on and the
 * connection ends: what a client has sent by then was meant for another protocol, and could be a request to another host.
 */
export function upgrade(
  request: IncomingMessage,
  inside: Duplex,
  head: Buffer,
  { errand, agent, onFailed }: { errand: Errand; agent: Agent; onFailed: (error: Error) => void },
): void {
  const wanted = { connection: 'upgrade', upgrade: request.headers.upgrade };
  const outgoing = send({
    agent,
    host: errand.name,
    port: errand.port,
    method: request.method ?? 'GET',
    path: request.url ?? '/',
    headers: { ...forwarded(request.headers), ...wanted },
    setHost: false,
  });
  inside.on('error', () => inside.destroy());
  inside.once('close', () => outgoing.destroy());
  outgoing.on('upgrade', (answer, outside, first) => {
    const { connection, upgrade: becomes } = answer.headers;
    inside.write(headOf(answer, { connection, upgrade: becomes }), 'latin1');
    inside.write(first);
    outside.write(head);
    pipeline(inside, outside, () => {});
    pipeline(outside, inside, () => {});
  });
  outgoing.on('response', (answer) => {
    inside.write(headOf(answer, { connection: 'close' }), 'latin1');
    pipeline(answer, inside, () => {});
  });
  outgoing.on('error', (error) => {
    onFailed(error);
    inside.destroy();
  });
  outgoing.end();
}

const headOf = (answer: IncomingMessage, own: IncomingHttpHeaders): string => {
  const headers = Object.entries({ ...forwarded(answer.headers), ...own });
  const lines = headers.flatMap(([name, value]) => [value ?? []].flat().map((each) => `${name}: ${each}`));
  return `${[`HTTP/1.1 ${answer.statusCode} ${answer.statusMessage}`, ...lines].join('\r\n')}\r\n\r\n`;
};
