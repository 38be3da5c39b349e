import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';

/** Headers that belong to one connection and are never passed on. */
export const hopByHop = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** A client may not drop these by naming them in `Connection`: they say where a request goes and where it ends. */
const staying = new Set(['host', 'content-length']);

/** What goes on to the next connection: not what is said to be for this one. */
export const forwarded = (headers: IncomingHttpHeaders): IncomingHttpHeaders => {
  const named = new Set((headers.connection ?? '').toLowerCase().split(/\s*,\s*/));
  const goesOn = (name: string): boolean => staying.has(name) || (!hopByHop.has(name) && !named.has(name));
  return Object.fromEntries(Object.entries(headers).filter(([name]) => goesOn(name)));
};

/**
 * Of a request, with what says where its body ends. Without that, a body would be sent as it is, and the server would take it for the
 * next request.
 */
export const forwardedOf = ({ headers }: IncomingMessage): IncomingHttpHeaders => {
  if (headers['transfer-encoding'] === undefined) return forwarded(headers);
  const { 'content-length': _, ...others } = forwarded(headers);
  return { ...others, 'transfer-encoding': 'chunked' };
};

/**
 * Left out where a secret goes along. Ranges would have a value said back in pieces too small to be found; the others make another
 * method or path of a request than the one that was judged.
 */
const misleading = [
  ...['range', 'if-range'],
  ...['x-http-method-override', 'x-http-method', 'x-method-override', 'x-original-url', 'x-rewrite-url'],
];

export const withoutMisleading = (headers: IncomingHttpHeaders): IncomingHttpHeaders =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !misleading.includes(name)));
