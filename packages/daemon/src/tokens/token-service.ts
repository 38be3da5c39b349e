import { hash, randomBytes } from 'node:crypto';
import {
  CoppiceError,
  type createdTokenSchema,
  type createTokenSchema,
  type IdSource,
  parseScope,
  type Quota,
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

/** Whose quota holds for what is made with it. */
const ownerOf = ({ scope, person, id }: TokenRecord): string | null =>
  parseScope(scope)?.kind === 'project' ? (person ?? id) : null;

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
    return this.#principal(this.#known.get(digest(secret)));
  }

  /** The same for who was let in by a token before: what the token reaches now. */
  byId(id: string): Principal | undefined {
    const record = this.#state.tokens.byId(id);
    return this.#principal(record && this.#known.get(record.secretSha256));
  }

  #principal(record: TokenRecord | undefined): Principal | undefined {
    if (record === undefined || (record.expiresAtMs !== null && record.expiresAtMs <= this.#now()))
      return undefined;
    const scope = parseScope(record.scope);
    if (scope === undefined) return undefined;
    this.#markUse(record);
    return { tokenId: record.id, scope, role: record.role, owner: ownerOf(record) };
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
    const made = this.make(input.name, input.scope, lifetimeMs);
    const { role, person = null, quota = null } = input;
    const record = { ...made.record, role, person, quota };
    this.#state.transaction(() => this.#state.tokens.insert(record));
    this.remember(record);
    return { ...tokenView(record), secret: made.secret };
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
      record: {
        id,
        name,
        scope,
        role: 'full',
        person: null,
        quota: null,
        secretSha256: digest(secret),
        createdAtMs,
        expiresAtMs,
        lastUsedAtMs: null,
      },
    };
  }

  /** The strictest of what the tokens of that owner carry. */
  quotaOf(owner: string): Quota | undefined {
    const quotas = [...this.#known.values()].flatMap((record) =>
      record.quota !== null && ownerOf(record) === owner ? [record.quota] : [],
    );
    if (quotas.length === 0) return undefined;
    const least = (field: keyof Quota): number | null => {
      const given = quotas.map((quota) => quota[field]).filter((most) => most !== null);
      return given.length === 0 ? null : Math.min(...given);
    };
    return {
      sandboxes: least('sandboxes'),
      memory_mb: least('memory_mb'),
      disk_mb: least('disk_mb'),
      snapshots: least('snapshots'),
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
