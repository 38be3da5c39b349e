import { CoppiceError } from '@coppice/protocol';
import { z } from 'zod';
import { type Challenge, parseChallenges } from './challenge.ts';
import type { Credentials } from './credentials.ts';
import { type HttpAnswer, type HttpExchange, type HttpQuestion, readBody } from './http-exchange.ts';
import { checkAddress } from './registry-address.ts';

export interface AccessOptions {
  readonly exchange: HttpExchange;
  /** Looked up when a registry asks for them; undefined: nobody logged in. */
  readonly credentials: () => Promise<Credentials | undefined>;
}

const mostTokenBytes = 1 << 20;
const tokenSchema = z.object({ token: z.string().optional(), access_token: z.string().optional() });

/** Gets in where a registry asks who we are: with a password, or with a token that its own service hands out for it. */
export class RegistryAccess {
  readonly #options: AccessOptions;
  /** By scope; of Basic there is one for all. */
  readonly #known = new Map<string, string>();

  constructor(options: AccessOptions) {
    this.#options = options;
  }

  /** `scope`: what is to be done, as `repository:NAME:pull`; several with a space between. */
  async ask(url: URL, scope: string, question: HttpQuestion): Promise<HttpAnswer> {
    const { exchange } = this.#options;
    const first = await exchange.ask(url, question, this.#known.get(scope) ?? this.#known.get(''));
    // Only what a registry itself says counts: the place that it sends us to for content has no business to ask.
    if (first.status !== 401 || first.url.origin !== url.origin) return first;
    const challenges = parseChallenges(String(first.headers['www-authenticate'] ?? ''));
    const authorization = await this.#answer(challenges, url, scope, question.signal);
    if (authorization === undefined || isSpent(question)) return first;
    first.body.resume();
    return exchange.ask(url, question, authorization);
  }

  async #answer(
    challenges: readonly Challenge[],
    url: URL,
    scope: string,
    signal: AbortSignal | undefined,
  ): Promise<string | undefined> {
    const bearer = challenges.find(({ scheme }) => scheme === 'bearer');
    if (bearer !== undefined) {
      const authorization = `Bearer ${await this.#fetchToken(bearer, url, scope, signal)}`;
      this.#known.set(scope, authorization);
      return authorization;
    }
    if (!challenges.some(({ scheme }) => scheme === 'basic')) return undefined;
    const credentials = await this.#options.credentials();
    if (credentials?.kind !== 'password') return undefined;
    const authorization = basic(credentials);
    // The same again would be refused again.
    if (this.#known.get('') === authorization) return undefined;
    this.#known.set('', authorization);
    return authorization;
  }

  async #fetchToken(
    { parameters }: Challenge,
    registry: URL,
    scope: string,
    signal: AbortSignal | undefined,
  ): Promise<string> {
    const realm = realmOf(parameters.realm, registry);
    const credentials = await this.#options.credentials();
    const service = parameters.service ?? '';
    const answer =
      credentials?.kind === 'identity-token'
        ? await this.#postForToken(realm, { service, scope, refreshToken: credentials.token }, signal)
        : await this.#getToken(realm, { service, scope }, credentials, signal);
    const text = (await readBody(answer, mostTokenBytes)).toString('utf8');
    if (answer.status === 401 || answer.status === 403)
      throw new CoppiceError(
        'forbidden',
        `${realm.host} gives no token for ${registry.host}: the login is refused`,
        {
          hint: `Log in again: coppice images login ${registry.host}`,
        },
      );
    const token = answer.status === 200 ? readToken(text) : undefined;
    if (token !== undefined) return token;
    throw new CoppiceError(
      'unavailable',
      `${realm.host} gives no token for ${registry.host} (status ${answer.status})`,
    );
  }

  #getToken(
    realm: URL,
    { service, scope }: { service: string; scope: string },
    password: PasswordCredentials | undefined,
    signal: AbortSignal | undefined,
  ): Promise<HttpAnswer> {
    const url = new URL(realm);
    if (service !== '') url.searchParams.set('service', service);
    for (const one of scope.split(' ')) if (one !== '') url.searchParams.append('scope', one);
    return this.#options.exchange.ask(url, { signal }, password === undefined ? undefined : basic(password));
  }

  #postForToken(
    realm: URL,
    { service, scope, refreshToken }: { service: string; scope: string; refreshToken: string },
    signal: AbortSignal | undefined,
  ): Promise<HttpAnswer> {
    const form = new URLSearchParams({
      grant_type: 'refresh_token',
      refresh_token: refreshToken,
      client_id: 'coppice',
      service,
      scope,
    });
    const headers = { 'content-type': 'application/x-www-form-urlencoded' };
    return this.#options.exchange.ask(realm, {
      method: 'POST',
      headers,
      body: Buffer.from(form.toString()),
      signal,
    });
  }
}

/** A stream can be sent once; who uploads asks for something small first, and has its token then. */
const isSpent = ({ body }: HttpQuestion): boolean => body !== undefined && !Buffer.isBuffer(body);

type PasswordCredentials = Extract<Credentials, { kind: 'password' }>;

const basic = ({ username, password }: PasswordCredentials): string =>
  `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;

function realmOf(text: string | undefined, registry: URL): URL {
  if (text === undefined || !URL.canParse(text))
    throw new CoppiceError('unavailable', `the registry ${registry.host} does not say where its tokens are`);
  const realm = new URL(text);
  checkAddress(realm, registry);
  return realm;
}

function readToken(text: string): string | undefined {
  try {
    const { token, access_token: access } = tokenSchema.parse(JSON.parse(text));
    const found = token ?? access;
    // It becomes part of a header.
    return found !== undefined && /^[\x21-\x7e]+$/.test(found) ? found : undefined;
  } catch {
    return undefined;
  }
}
