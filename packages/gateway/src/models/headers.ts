import type { IncomingMessage } from 'node:http';
import { hopByHop } from '../egress/forwarded-headers.ts';

const ofOneConnection = [...hopByHop, 'expect'];

/** Of a request: what the gateway says itself, what holds a key, and what says who pays. */
const notFromClients = new Set([
  ...ofOneConnection,
  'host',
  'content-length',
  'accept-encoding',
  'authorization',
  'x-api-key',
  'api-key',
  'x-goog-api-key',
  'x-goog-user-project',
  'openai-organization',
  'openai-project',
  'cookie',
  'forwarded',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-real-ip',
  'via',
]);

const notFromUpstreams = new Set([
  ...ofOneConnection,
  'set-cookie',
  'openai-organization',
  'openai-project',
  'alt-svc',
]);

type Headers = Record<string, string | string[]>;

const passOn = (message: IncomingMessage, dropped: ReadonlySet<string>): Headers => {
  // What `Connection` names is for one connection too.
  const named = String(message.headers.connection ?? '')
    .toLowerCase()
    .split(/\s*,\s*/);
  const passed: Headers = {};
  for (const [name, values] of Object.entries(message.headersDistinct))
    if (values !== undefined && !dropped.has(name) && !named.includes(name))
      passed[name] = values.length === 1 ? values[0]! : values;
  return passed;
};

/** The usage is read from the bytes as they pass, so they are asked for without compression. */
export const toUpstream = (
  client: IncomingMessage,
  key: Readonly<Record<string, string>>,
  bodyBytes: number,
): Headers => ({
  ...passOn(client, notFromClients),
  ...key,
  'accept-encoding': 'identity',
  'content-length': String(bodyBytes),
});

export const toClient = (upstream: IncomingMessage, call: string): Headers => ({
  ...passOn(upstream, notFromUpstreams),
  'x-coppice-call': call,
});
