import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';

/** Where a daemon listens and the token that opens it. */
export interface Endpoint {
  readonly url: URL;
  /** A unix socket of this machine; used instead of the host and port of the URL. */
  readonly socketPath: string | undefined;
  readonly token: string | undefined;
}

/** How a socket takes it. In a URL an address of IPv6 stands in brackets, and the usual port not at all. */
export const placeOf = ({ url, socketPath }: Endpoint): { path: string } | { host: string; port: number } => {
  if (socketPath !== undefined) return { path: socketPath };
  const usualPort = url.protocol === 'https:' ? 443 : 80;
  return {
    host: url.hostname.replace(/^\[(.*)\]$/, '$1'),
    port: url.port === '' ? usualPort : Number(url.port),
  };
};

/** What stands before the path of every call. */
export const pathPrefix = ({ url }: Endpoint): string => url.pathname.replace(/\/$/, '');

export interface EndpointOptions {
  /** Such as http://127.0.0.1:7310. Default: COPPICE_URL, then what the daemon of `home` says. */
  readonly url?: string;
  /** A unix socket of this machine. */
  readonly socket?: string;
  /** Default: COPPICE_TOKEN, then the file `token` in `home`. */
  readonly token?: string;
  /** The data directory of a daemon on this machine. Default: COPPICE_HOME, then /var/lib/coppice. */
  readonly home?: string;
}

/** What a running daemon writes to `daemon.json` in its home. */
export interface DaemonRecord {
  readonly pid: number;
  readonly url: string;
  readonly socket: string | null;
  /** Of config.json as the daemon read it; null from one that does not say. */
  readonly configDigest: string | null;
  /** What its start had to end or to mend. */
  readonly notices: readonly string[];
}

export const defaultHome = '/var/lib/coppice';

const readText = (path: string): string | undefined => {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    if (code === 'EACCES') {
      throw new CoppiceError('forbidden', `${path} may not be read by this user`, {
        hint: 'Run as the user that runs the daemon, or set COPPICE_URL and COPPICE_TOKEN.',
        cause: error,
      });
    }
    throw error;
  }
};

const parseRecord = (path: string, text: string): DaemonRecord => {
  try {
    const record = JSON.parse(text) as Partial<DaemonRecord> & { readonly config_digest?: string };
    const { pid, url, socket = null, config_digest: configDigest = null, notices = [] } = record;
    if (typeof pid === 'number' && typeof url === 'string')
      return { pid, url, socket, configDigest, notices };
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new CoppiceError('corrupt', `${path} does not say where the daemon listens`, {
    hint: 'Restart the daemon: `coppice down`, then `coppice up`.',
  });
};

/** What the daemon of a home says about itself, or nothing when none has started or it stopped in order. */
export const readDaemonRecord = (home: string): DaemonRecord | undefined => {
  const path = join(home, 'daemon.json');
  const text = readText(path);
  return text === undefined ? undefined : parseRecord(path, text);
};

const parseUrl = (text: string): URL => {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    throw new CoppiceError('invalid_argument', `${text} is not an http or https URL`, {
      hint: 'Give it like http://127.0.0.1:7310.',
    });
  }
  return url;
};

/** It becomes part of the head of every call, where a line break would begin another header. */
const checkToken = (token: string | undefined): string | undefined => {
  if (token === undefined || /^[\x21-\x7e]*$/.test(token)) return token;
  throw new CoppiceError('invalid_argument', 'the token holds characters that no token has', {
    hint: 'Look at COPPICE_TOKEN, or at the file that the token was read from.',
  });
};

/** Finds the daemon: what was given, then the environment, then the home's own records. */
export const findEndpoint = (options: EndpointOptions, env: NodeJS.ProcessEnv): Endpoint => {
  const home = options.home ?? (env.COPPICE_HOME || defaultHome);
  const givenUrl =
    options.url ?? (options.home === undefined && options.socket === undefined ? env.COPPICE_URL : undefined);
  const token = checkToken(
    options.token ??
      ((options.home === undefined ? env.COPPICE_TOKEN : undefined) || readText(join(home, 'token'))?.trim()),
  );
  if (options.socket !== undefined) {
    return { url: new URL('http://localhost'), socketPath: options.socket, token };
  }
  if (givenUrl !== undefined && givenUrl !== '') {
    return { url: parseUrl(givenUrl), socketPath: undefined, token };
  }
  const record = readDaemonRecord(home);
  if (record === undefined) {
    throw new CoppiceError('unavailable', `no daemon runs on ${home}`, {
      hint: 'Start one with `coppice up --detach`, or set COPPICE_HOME or COPPICE_URL to the one you mean.',
    });
  }
  return { url: parseUrl(record.url), socketPath: record.socket ?? undefined, token };
};
