import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { CoppiceError, type Secret, type SecretUse, secretUseSchema } from '@coppice/protocol';
import type { GatewayState } from '../state.ts';

const keyBytes = 32;
const nonceBytes = 12;
const tagBytes = 16;

/** Values that only the gateway ever has in the clear. What is on disk opens with the key file alone. */
export class Secrets {
  readonly #state: GatewayState;
  readonly #key: Buffer;
  readonly #uses = new Map<string, SecretUse>();

  constructor(state: GatewayState, keyFile: string) {
    this.#state = state;
    this.#key = openKey(keyFile);
    for (const { name, body } of state.secretUses())
      this.#uses.set(name, secretUseSchema.parse(JSON.parse(body)));
  }

  /** Where `use` is left out, it is put where it was before. */
  set(name: string, value: string, use?: SecretUse | null): void {
    if (use === undefined && value.length < 8 && this.#uses.has(name))
      throw new CoppiceError('invalid_argument', `a value of ${name} must have 8 characters at least`);
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv('aes-256-gcm', this.#key, nonce);
    // Sealed with its name: a value cannot be put under another one.
    cipher.setAAD(Buffer.from(name));
    const sealed = Buffer.concat([nonce, cipher.update(value, 'utf8'), cipher.final(), cipher.getAuthTag()]);
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
    try {
      const decipher = createDecipheriv('aes-256-gcm', this.#key, sealed.subarray(0, nonceBytes));
      decipher.setAAD(Buffer.from(name));
      decipher.setAuthTag(sealed.subarray(-tagBytes));
      return Buffer.concat([
        decipher.update(sealed.subarray(nonceBytes, -tagBytes)),
        decipher.final(),
      ]).toString('utf8');
    } catch {
      throw new CoppiceError('corrupt', `the secret ${name} does not open with the key of this gateway`, {
        hint: `Set it again: coppice secret set ${name}`,
      });
    }
  }

  /** Undefined where it is put into no request of sandboxes. */
  useOf(name: string): SecretUse | undefined {
    return this.#uses.get(name);
  }

  list(): Secret[] {
    return this.#state
      .secretNames()
      .map((secret) => ({ ...secret, use: this.#uses.get(secret.name) ?? null }));
  }

  remove(name: string): void {
    if (!this.#state.removeSecret(name))
      throw new CoppiceError('not_found', `the gateway has no secret ${name}`);
    this.#uses.delete(name);
  }
}

function openKey(file: string): Buffer {
  try {
    writeFileSync(file, randomBytes(keyBytes), { mode: 0o600, flag: 'wx', flush: true });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  const key = readFileSync(file);
  if (key.length !== keyBytes)
    throw new CoppiceError('corrupt', `${file} does not hold the key of the secrets`, {
      hint: 'Bring it back from a backup, or move it away and set every secret again.',
    });
  return key;
}
