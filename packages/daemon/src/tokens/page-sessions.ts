import { hash, randomBytes, timingSafeEqual } from 'node:crypto';
import { CoppiceError, formatScope, type PageLink, type Whoami } from '@coppice/protocol';
import type { State } from '../db/state.ts';
import type { Principal, SignedIn } from '../services.ts';
import type { TokenService } from './token-service.ts';

const codeLifetimeMs = 5 * 60_000;
const sessionLifetimeMs = 7 * 24 * 60 * 60_000;
/** Of one token: links that nobody has used yet, and browsers that are signed in. The oldest goes when there are more. */
const codesPerToken = 10;
const sessionsPerToken = 50;
const keyPrefix = 'cpp_';

const digest = (secret: string): string => hash('sha256', secret, 'hex');
const secret = (prefix = ''): string => prefix + randomBytes(32).toString('base64url');
const when = (ms: number): string => new Date(ms).toISOString();

export interface PageSessionsOptions {
  readonly state: State;
  readonly tokens: TokenService;
  readonly now: () => number;
}

/**
 * Browsers that were signed in by a link. A cookie goes to every port of its host, and so to servers inside sandboxes whose
 * ports are forwarded. Alone it is therefore worth nothing: a page also shows a key, which browsers keep per port and send to
 * nobody by themselves. Both together reach what the token behind them reaches at that moment.
 */
export class PageSessions {
  readonly #state: State;
  readonly #tokens: TokenService;
  readonly #now: () => number;
  /** By digest. They live for minutes, so a daemon that ends takes them along. */
  readonly #codes = new Map<string, { readonly tokenId: string; readonly expiresAtMs: number }>();

  constructor({ state, tokens, now }: PageSessionsOptions) {
    this.#state = state;
    this.#tokens = tokens;
    this.#now = now;
  }

  static isKey(text: string): boolean {
    return text.startsWith(keyPrefix);
  }

  link({ tokenId, signedInUntilMs }: Principal): PageLink {
    if (signedInUntilMs !== undefined)
      throw new CoppiceError('forbidden', 'a page cannot sign in another one', {
        hint: 'Run `coppice open` where the token is.',
      });
    const code = secret();
    const expiresAtMs = this.#now() + codeLifetimeMs;
    this.#codes.set(digest(code), { tokenId, expiresAtMs });
    const own = [...this.#codes].filter(([, made]) => made.tokenId === tokenId);
    for (const [oldest] of own.slice(0, -codesPerToken)) this.#codes.delete(oldest);
    return { code, path: `/#code=${code}`, expires_at: when(expiresAtMs) };
  }

  /** Uses the code up. */
  open(code: string): SignedIn {
    const key = digest(code);
    const found = this.#codes.get(key);
    this.#codes.delete(key);
    if (
      found === undefined ||
      found.expiresAtMs <= this.#now() ||
      this.#tokens.byId(found.tokenId) === undefined
    )
      throw new CoppiceError('unauthenticated', 'this link was already used or has expired', {
        hint: 'Run `coppice open` for another one.',
      });
    const session = {
      key: secret(keyPrefix),
      cookie: secret(),
      expiresAtMs: this.#now() + sessionLifetimeMs,
    };
    this.#state.transaction(() => {
      this.#state.pageSessions.insert({
        keySha256: digest(session.key),
        cookieSha256: digest(session.cookie),
        tokenId: found.tokenId,
        expiresAtMs: session.expiresAtMs,
      });
      this.#state.pageSessions.keepNewest(found.tokenId, sessionsPerToken);
    });
    return session;
  }

  /** Undefined unless both belong together and the token behind them is still good. */
  authenticate(key: string, cookie: string | undefined): Principal | undefined {
    const record = this.#state.pageSessions.byKey(digest(key));
    if (record === undefined || cookie === undefined || record.expiresAtMs <= this.#now()) return undefined;
    if (!timingSafeEqual(Buffer.from(digest(cookie)), Buffer.from(record.cookieSha256))) return undefined;
    const principal = this.#tokens.byId(record.tokenId);
    return principal && { ...principal, signedInUntilMs: record.expiresAtMs };
  }

  close(key: string): void {
    this.#state.transaction(() => this.#state.pageSessions.delete(digest(key)));
  }

  describe({ tokenId, scope, role, signedInUntilMs }: Principal): Whoami {
    return {
      token_id: tokenId,
      scope: formatScope(scope),
      role,
      signed_in_until: signedInUntilMs === undefined ? null : when(signedInUntilMs),
    };
  }

  prune(): void {
    const nowMs = this.#now();
    for (const [key, { expiresAtMs }] of this.#codes) if (expiresAtMs <= nowMs) this.#codes.delete(key);
    this.#state.transaction(() => this.#state.pageSessions.deleteEnded(nowMs));
  }
}
