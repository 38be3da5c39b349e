import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol';
import type { GatewayState } from '../state.ts';

const keyBytes = 32;
const nonceBytes = 12;
const tagBytes = 16;

/** Values that only the gateway ever has in the clear. What is on disk opens with the key file alone. */
export class Secrets {
  readonly #state: GatewayState;
  readonly #key: Buffer;

  constructor(state: GatewayState, keyFile: string) {
    this.#state = state;
    this.#key = openKey(keyFile);
  }

  set(name: string, value: string): void {
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv('aes-256-gcm', this.#key, nonce);
    // Sealed with its name: a value cannot be put under another one.
    cipher.setAAD(Buffer.from(name));
    const sealed = Buffer.concat([nonce, cipher.update(value, 'utf8'), cipher.final(), cipher.getAuthTag()]);
    this.#state.setSecret(name, sealed, Date.now());
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

  list(): { name: string; changed_ms: number }[] {
    return this.#state.secretNames();
  }

  remove(name: string): void {
    if (!this.#state.removeSecret(name))
      throw new CoppiceError('not_found', `the gateway has no secret ${name}`);
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
