import { type Action, accessOf, CoppiceError, covers, type Scope } from '@coppice/protocol';
import type { Principal } from '../services.ts';
import type { RateLimiter } from './rate-limiter.ts';

export interface GateOptions {
  readonly rateLimiter: RateLimiter;
  /** Whose secret this is; undefined when nobody’s. */
  readonly authenticate: (secret: string) => Principal | undefined;
  /** The id behind an id or a name; undefined where there is none. */
  readonly sandboxId: (ref: string) => string | undefined;
}

/** Where a call comes from. The socket of the home is root's alone, so strangers cannot use up what it may do. */
export type Origin = 'network' | 'home';

/** Who calls, whether they call too often, and what they may do: the same for every door. */
export class Gate {
  readonly #rateLimiter: RateLimiter;
  readonly #authenticate: GateOptions['authenticate'];
  readonly #sandboxId: GateOptions['sandboxId'];

  constructor({ rateLimiter, authenticate, sandboxId }: GateOptions) {
    this.#rateLimiter = rateLimiter;
    this.#authenticate = authenticate;
    this.#sandboxId = sandboxId;
  }

  /** Whose token this is; counts the call. Needs nothing but the head of a request. */
  enter(authorization: string | undefined, origin: Origin): Principal {
    const secret = /^Bearer (\S{1,256})$/.exec(authorization ?? '')?.[1];
    const principal = secret === undefined ? undefined : this.#authenticate(secret);
    if (principal !== undefined) {
      this.#rateLimiter.take(principal.tokenId);
      return principal;
    }
    this.enterUnknown(origin);
    throw new CoppiceError(
      'unauthenticated',
      secret === undefined ? 'a token is needed' : 'this token is not valid',
    );
  }

  /** Counts a call for which nobody needs to be known. All strangers share one limit: an address is cheap to change. */
  enterUnknown(origin: Origin): void {
    this.#rateLimiter.take(`unknown ${origin}`);
  }

  /** A sandbox's token learns nothing of others, not even whether they exist. */
  assertMay(principal: Principal | undefined, action: Action, sandboxRef?: string): void {
    if (!this.#may(principal?.scope, action, sandboxRef))
      throw new CoppiceError('forbidden', 'this token does not reach that');
  }

  /** Counts what a large document costs. */
  charge(principal: Principal, bytes: number): void {
    this.#rateLimiter.charge(principal.tokenId, bytes);
  }

  #may(scope: Scope | undefined, action: Action, sandboxRef: string | undefined): boolean {
    if (scope?.kind === 'admin') return true;
    const sandboxId = sandboxRef === undefined ? undefined : this.#sandboxId(sandboxRef);
    return covers(scope, accessOf(action), sandboxId);
  }
}
