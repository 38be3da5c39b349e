import { hash, randomBytes } from 'node:crypto';
import {
  CoppiceError,
  type createdTokenSchema,
  type createTokenSchema,
  type IdSource,
  parseScope,
  type Token,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { State } from '../db/state.ts';
import type { TokenRecord } from '../db/token-table.ts';
import { tokenView } from '../sandboxes/views.ts';
import type { Principal } from '../services.ts';

/** Last use is written down at most this often per token: it is for people. */
const lastUseIntervalMs = 60_000;

const digest = (secret: string): string => hash('sha256', secret, 'hex');

export class TokenService {
  readonly #state: State;
  readonly #ids: IdSource;
  readonly #now: () => number;
  /** By digest of the secret. Tokens change only through this class, so it is never stale. */
  readonly #known = new Map<string, TokenRecord>();

  constructor(state: State, ids: IdSource, now: () => number) {
    this.#state = state;
    this.#ids = ids;
    this.#now = now;
    for (const record of state.tokens.all()) this.#known.set(record.secretSha256, record);
  }

  /** Undefined for a secret that is unknown, revoked or expired, or whose scope is of a kind that is not known here. */
  authenticate(secret: string): Principal | undefined {
    const record = this.#known.get(digest(secret));
    if (record === undefined || (record.expiresAtMs !== null && record.expiresAtMs <= this.#now()))
      return undefined;
    const scope = parseScope(record.scope);
    if (scope === undefined) return undefined;
    this.#markUse(record);
    return { tokenId: record.id, scope };
  }

  async list(): Promise<Token[]> {
    return this.#state.tokens.all().map(tokenView);
  }

  async create(input: z.output<typeof createTokenSchema>): Promise<z.output<typeof createdTokenSchema>> {
    const scope = parseScope(input.scope);
    if (scope?.kind === 'sandbox' && this.#state.sandboxes.byId(scope.sandboxId) === undefined)
      throw new CoppiceError('not_found', `there is no sandbox ${scope.sandboxId} for a token to reach`, {
        hint: 'List them with `coppice ls`.',
      });
    if (this.#state.tokens.all().some((token) => token.name === input.name))
      throw new CoppiceError('name_taken', `there is already a token named ${input.name}`);
    const lifetimeMs = input.expires_in_s === undefined ? null : input.expires_in_s * 1000;
    const { record, secret } = this.make(input.name, input.scope, lifetimeMs);
    this.#state.transaction(() => this.#state.tokens.insert(record));
    this.remember(record);
    return { ...tokenView(record), secret };
  }

  /** By id or name. */
  async revoke(ref: string): Promise<void> {
    const record = this.#state.tokens.all().find((token) => token.id === ref || token.name === ref);
    if (record === undefined)
      throw new CoppiceError('not_found', `there is no token ${ref}`, {
        hint: 'List them with `coppice token ls`.',
      });
    this.#state.transaction(() => this.#state.tokens.delete(record.id));
    this.#known.delete(record.secretSha256);
  }

  /** A token that its caller inserts in a transaction of its own, and then tells with remember. */
  make(
    name: string,
    scope: string,
    lifetimeMs: number | null = null,
    given?: string,
  ): { record: TokenRecord; secret: string } {
    const secret = given ?? `cpt_${randomBytes(32).toString('base64url')}`;
    const createdAtMs = this.#now();
    const expiresAtMs = lifetimeMs === null ? null : createdAtMs + lifetimeMs;
    const id = this.#ids.next('token');
    return {
      secret,
      record: { id, name, scope, secretSha256: digest(secret), createdAtMs, expiresAtMs, lastUsedAtMs: null },
    };
  }

  remember(record: TokenRecord): void {
    this.#known.set(record.secretSha256, record);
  }

  forgetScope(scope: string): void {
    for (const [key, record] of this.#known) if (record.scope === scope) this.#known.delete(key);
  }

  /** Makes the secret that the home's token file holds an admin token: at first start, and after a backup came back. */
  ensureAdmin(secret: string): void {
    if (this.#known.has(digest(secret))) return;
    const taken = new Set(this.#state.tokens.all().map((token) => token.name));
    let name = 'home';
    for (let n = 2; taken.has(name); n += 1) name = `home-${n}`;
    const { record } = this.make(name, 'admin', null, secret);
    this.#state.transaction(() => this.#state.tokens.insert(record));
    this.remember(record);
  }

  #markUse(record: TokenRecord): void {
    const nowMs = this.#now();
    if (record.lastUsedAtMs !== null && nowMs - record.lastUsedAtMs < lastUseIntervalMs) return;
    this.#known.set(record.secretSha256, { ...record, lastUsedAtMs: nowMs });
    this.#state.tokens.setLastUsed(record.id, nowMs);
  }
}
