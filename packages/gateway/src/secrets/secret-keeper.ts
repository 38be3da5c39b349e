import type { IncomingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';
import { connect, rootCertificates, type TLSSocket, TLSSocket as TlsSocket } from 'node:tls';
import { type NameRule, parseDestination, ruleFor, type SecretUse } from '@coppice/protocol';
import type { Errand } from '../egress/errand.ts';
import type { Authority } from './authority.ts';
import type { Secrets } from './secrets.ts';
import { shapesOf } from './shapes.ts';

export interface SecretKeeperParts {
  readonly secrets: Secrets;
  readonly authority: Authority;
  /** Authorities that servers are held to, besides the well-known ones. */
  readonly trust: readonly string[];
}

/** A request with its secrets, and what must not come back with the answer. */
export interface Cloaked {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly needles: readonly Buffer[];
}

const handshakeMs = 15_000;

/** Ends TLS for the hosts of secrets alone, and puts the real values in where a sandbox has none. */
export class SecretKeeper {
  readonly #parts: SecretKeeperParts;

  constructor(parts: SecretKeeperParts) {
    this.#parts = parts;
  }

  /** What a sandbox that may use these secrets trusts, and the hosts that this holds for. */
  trustFor(secrets: readonly string[]): { certificate: string; hosts: readonly string[] } {
    const patterns = this.#uses(secrets).flatMap(({ use }) => use.hosts.flatMap(rulesOf));
    const hosts = [...new Set(patterns.map(({ pattern }) => pattern))].sort();
    return { certificate: this.#parts.authority.certificateFor(hosts), hosts };
  }

  /** Whether a secret that this sandbox may use belongs to this host. */
  keeps({ policy, name, port }: Pick<Errand, 'policy' | 'name' | 'port'>): boolean {
    return this.#uses(policy.secrets).some(({ use }) => belongsTo(use, name, port));
  }

  /** Speaks TLS with a client that takes this for the host that it named. */
  accept(socket: Socket, name: string): Promise<TLSSocket> {
    const secure = new TlsSocket(socket, {
      isServer: true,
      secureContext: this.#parts.authority.contextFor(name),
      ALPNProtocols: ['http/1.1'],
    });
    return settled(secure, 'secure');
  }

  /** Speaks TLS with the host itself, which must show that it is. */
  reach(outside: Socket, name: string): Promise<TLSSocket> {
    const secure = connect({
      socket: outside,
      servername: name,
      ALPNProtocols: ['http/1.1'],
      ...(this.#parts.trust.length === 0 ? {} : { ca: [...rootCertificates, ...this.#parts.trust] }),
    });
    return settled(secure, 'secureConnect');
  }

  /** Throws in words for whoever sent it where the path could mean another one to the server. */
  cloak(errand: Errand, method: string, target: string, headers: IncomingHttpHeaders): Cloaked {
    const { name, port, policy } = errand;
    let path = target;
    const put: IncomingHttpHeaders = { ...headers };
    const needles: Buffer[] = [];
    for (const { secret, use } of this.#uses(policy.secrets)) {
      if (!belongsTo(use, name, port)) continue;
      const value = this.#parts.secrets.value(secret);
      // Also of those that this request does not use: the server may know them from others.
      needles.push(...needlesOf(value, use));
      if (use.methods.length > 0 && !use.methods.includes(method)) continue;
      if (!isForPath(use, target)) continue;
      const { place } = use;
      if (place.kind === 'query') path = withParameter(path, place.name, value);
      else if (place.kind === 'basic') put.authorization = basic(place.user, value);
      else put[place.name.toLowerCase()] = place.format.replace('{}', () => value);
    }
    // What cannot be read could hold the value.
    return { path, headers: { ...put, 'accept-encoding': 'identity' }, needles };
  }

  /** Rules for git of this host; undefined where it is not for git alone. */
  gitRules({ policy, name, port }: Errand): SecretUse['git'] | undefined {
    const rules = this.#uses(policy.secrets)
      .filter(({ use }) => belongsTo(use, name, port))
      .flatMap(({ use }) => use.git);
    return rules.length === 0 ? undefined : rules;
  }

  #uses(names: readonly string[]): { readonly secret: string; readonly use: SecretUse }[] {
    return names.flatMap((secret) => {
      const use = this.#parts.secrets.useOf(secret);
      return use === undefined ? [] : [{ secret, use }];
    });
  }
}

/** The path of a request means one thing to us and might mean another to the server. */
export class AmbiguousPath extends Error {}

const belongsTo = ({ hosts }: SecretUse, name: string, port: number): boolean =>
  hosts.some((host) => ruleFor(rulesOf(host), name, port) !== undefined);

/** Never at the port of plain HTTP. */
const rulesOf = (host: string): NameRule[] => {
  const parsed = parseDestination(host);
  if (!('kind' in parsed) || parsed.kind !== 'names') return [];
  return parsed.rules.map((rule) => ({ ...rule, ports: rule.ports.filter((each) => each !== 80) }));
};

/** Dots, slashes and backslashes that a server may read as another path, plain or encoded. */
const ambiguous = /\/\.{1,2}(?:\/|;|$)|\/\/|\\|%(?:2e|2f|5c|25|00)|[^\x21-\x7e]|;/i;

function isForPath({ paths, git }: SecretUse, target: string): boolean {
  if (paths.length === 0 && git.length === 0) return true;
  const path = target.split('?', 1)[0]!;
  if (ambiguous.test(path))
    throw new AmbiguousPath(
      'the path can be read in more than one way, and a secret of this host belongs to some paths',
    );
  return (
    paths.length === 0 ||
    paths.some((one) => (one.endsWith('*') ? path.startsWith(one.slice(0, -1)) : path === one))
  );
}

function withParameter(target: string, name: string, value: string): string {
  const at = target.indexOf('?');
  const kept = at === -1 ? [] : target.slice(at + 1).split('&');
  const others = kept.filter((pair) => pair !== '' && nameIn(pair) !== name);
  const path = at === -1 ? target : target.slice(0, at);
  return `${path}?${[...others, `${name}=${encodeURIComponent(value)}`].join('&')}`;
}

const nameIn = (pair: string): string => {
  try {
    return decodeURIComponent(pair.split('=', 1)[0]!.replaceAll('+', ' '));
  } catch {
    return pair;
  }
};

const basic = (user: string, value: string): string =>
  `Basic ${Buffer.from(`${user}:${value}`).toString('base64')}`;

/** What must not come back: the longest first, so that what holds a value is covered whole. */
export const needlesOf = (value: string, { place }: Pick<SecretUse, 'place'>): Buffer[] => {
  const shapes = [
    ...(place.kind === 'basic' ? [basic(place.user, value).slice('Basic '.length)] : []),
    ...shapesOf(value),
  ];
  return (
    shapes
      .sort((one, other) => other.length - one.length)
      // Headers are sent as latin1, bodies mostly as UTF-8.
      .flatMap((shape) => [Buffer.from(shape), Buffer.from(shape, 'latin1')])
      .filter((shape, index, all) => index % 2 === 0 || !shape.equals(all[index - 1]!))
  );
};

function settled(socket: TLSSocket, event: 'secure' | 'secureConnect'): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => fail(new Error('the TLS handshake took too long')), handshakeMs);
    const fail = (error: Error): void => {
      clearTimeout(timer);
      socket.destroy();
      reject(error);
    };
    const closed = (): void => fail(new Error('the connection ended during the TLS handshake'));
    socket.once('error', fail);
    socket.once('close', closed);
    socket.once(event, () => {
      clearTimeout(timer);
      socket.off('error', fail);
      socket.off('close', closed);
      socket.on('error', () => socket.destroy());
      resolve(socket);
    });
  });
}
