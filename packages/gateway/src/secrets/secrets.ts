import { CoppiceError, type Secret, type SecretUse, secretUseSchema } from '@coppice/protocol';
import type { GatewayState } from '../state.ts';
import type { SealingKey, SealingKeys } from './sealing-keys.ts';

/** Values that only the gateway ever has in the clear. What is on disk opens with the sealing key alone. */
export class Secrets {
  readonly #state: GatewayState;
  #keys: SealingKeys;
  readonly #uses = new Map<string, SecretUse>();

  constructor(state: GatewayState, keys: SealingKeys) {
    this.#state = state;
    this.#keys = keys;
    try {
      this.rekey(keys);
    } catch {
      // Whoever wants a value that does not open is told then; the others are of use meanwhile.
    }
    for (const { name, body } of state.secretUses())
      this.#uses.set(name, secretUseSchema.parse(JSON.parse(body)));
  }

  /** Where `use` is left out, it is put where it was before. */
  set(name: string, value: string, use?: SecretUse | null): void {
    if (use === undefined && value.length < 8 && this.#uses.has(name))
      throw new CoppiceError('invalid_argument', `a value of ${name} must have 8 characters at least`);
    const sealed = this.#keys.current.seal(name, value);
    const body = use === undefined || use === null ? use : JSON.stringify(use);
    this.#state.setSecret(name, sealed, Date.now(), body);
    if (use === null) this.#uses.delete(name);
    else if (use !== undefined) this.#uses.set(name, use);
  }

  value(name: string): string {
    const sealed = this.#state.secret(name);
    if (sealed === undefined)
      throw new CoppiceError('not_found', `the gateway has no secret ${name}`, {
        hint: `Give it one: coppice secret set ${name}`,
      });
    const value = opened(this.#keys.all, name, sealed);
    if (value !== undefined) return value;
    throw new CoppiceError('corrupt', `the secret ${name} does not open with the key of this gateway`, {
      hint: `Bring the key back, or set the secret again: coppice secret set ${name}`,
    });
  }

  /** Seals everything with the current key, in one step: after a crash all is sealed with one key, the old or the new. */
  rekey(keys: SealingKeys): void {
    const { current, all, settled } = keys;
    const known = this.#state.sealedWith();
    if (known !== current.id) {
      this.#state.seal(current.id, (name, sealed) => {
        const value = opened(all, name, sealed);
        if (value === undefined)
          throw new CoppiceError('corrupt', `no key that is here opens the secret ${name}`, {
            hint: 'Bring the earlier key back: the key file from a backup, or a second line of what gateway.key_command prints.',
          });
        return current.seal(name, value);
      });
    }
    this.#keys = keys;
    settled();
  }

  /** Undefined where it is put into no request of sandboxes. */
  useOf(name: string): SecretUse | undefined {
    return this.#uses.get(name);
  }

  /** Names after that prefix, of values that are no secrets of people. */
  hidden(prefix: string): string[] {
    return this.#state
      .secretNames()
      .flatMap(({ name }) => (name.startsWith(prefix) ? [name.slice(prefix.length)] : []));
  }

  list(): Secret[] {
    return this.#state
      .secretNames()
      .filter(({ name }) => !name.includes('/'))
      .map((secret) => ({ ...secret, use: this.#uses.get(secret.name) ?? null }));
  }

  remove(name: string): void {
    if (!this.#state.removeSecret(name))
      throw new CoppiceError('not_found', `the gateway has no secret ${name}`);
    this.#uses.delete(name);
  }
}

function opened(keys: readonly SealingKey[], name: string, sealed: Buffer): string | undefined {
  for (const key of keys)
    try {
      return key.open(name, sealed);
    } catch {
      // Sealed with another one.
    }
  return undefined;
}
