import type { IncomingMessage } from 'node:http';
import { tokenOfProtocols } from '@coppice/protocol';

/** What a request shows of who sent it. */
export interface Credentials {
  /** A token, or the key of a page. */
  readonly secret: string | undefined;
  /** The cookie of a page; only where nothing says that another page made the browser send it. */
  readonly cookie: string | undefined;
}

/** Cookies do not know ports: with the port in its name, two daemons of one machine do not sign each other's pages out. */
export const cookieName = (host: string | undefined): string => {
  const port = /:(\d+)$/.exec(host ?? '')?.[1];
  return port === undefined ? 'coppice' : `coppice_${port}`;
};

const safeMethods = new Set(['GET', 'HEAD', 'OPTIONS']);

/**
 * Whether it is our own page that calls. Origin was compared with Host before; here it has to be there for everything that
 * changes something, and for a WebSocket. Browsers say by themselves when another site or another port asks.
 */
export const isFromOwnPage = ({ method, headers }: IncomingMessage): boolean => {
  const site = headers['sec-fetch-site'];
  if (site !== undefined && site !== 'same-origin') return false;
  const isSafe = safeMethods.has(method ?? '') && headers.upgrade === undefined;
  return isSafe || headers.origin !== undefined;
};

const cookieOf = ({ headers }: IncomingMessage): string | undefined => {
  const prefix = `${cookieName(headers.host)}=`;
  const found = headers.cookie
    ?.split(';')
    .map((part) => part.trim())
    .filter((part) => part.startsWith(prefix));
  // Another port may have set one of the same name for a longer path: then none is believed.
  return found?.length === 1 ? found[0]!.slice(prefix.length) : undefined;
};

export const credentialsOf = (
  request: IncomingMessage,
  authorization = request.headers.authorization,
): Credentials => {
  const { upgrade, 'sec-websocket-protocol': protocols } = request.headers;
  const bearer = /^Bearer (\S{1,256})$/.exec(authorization ?? '')?.[1];
  const offered =
    authorization === undefined && upgrade !== undefined && protocols !== undefined
      ? tokenOfProtocols(protocols)
      : undefined;
  return {
    secret: bearer ?? offered?.slice(0, 256),
    cookie: isFromOwnPage(request) ? cookieOf(request) : undefined,
  };
};
