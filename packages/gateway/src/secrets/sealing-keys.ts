import { createCipheriv, createDecipheriv, createHash, randomBytes } from 'node:crypto';
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol';

const keyBytes = 32;
const nonceBytes = 12;
const tagBytes = 16;

/** A key that values are sealed with. Its id tells it from others and says nothing about it. */
export class SealingKey {
  readonly id: string;
  readonly #bytes: Buffer;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
    this.id = createHash('sha256').update('coppice sealing key').update(bytes).digest('hex').slice(0, 16);
  }

  /** Sealed with its name: a value cannot be put under another one. */
  seal(name: string, value: string): Buffer {
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv('aes-256-gcm', this.#bytes, nonce);
    cipher.setAAD(Buffer.from(name));
    return Buffer.concat([nonce, cipher.update(value, 'utf8'), cipher.final(), cipher.getAuthTag()]);
  }

  /** Throws where it was sealed with another key or under another name. */
  open(name: string, sealed: Buffer): string {
    const decipher = createDecipheriv('aes-256-gcm', this.#bytes, sealed.subarray(0, nonceBytes));
    decipher.setAAD(Buffer.from(name));
    decipher.setAuthTag(sealed.subarray(-tagBytes));
    const value = decipher.update(sealed.subarray(nonceBytes, -tagBytes));
    return Buffer.concat([value, decipher.final()]).toString('utf8');
  }
}

/** The key to seal with, and all that something may have been sealed with before. */
export interface SealingKeys {
  readonly current: SealingKey;
  readonly all: readonly SealingKey[];
  /** Called when everything is sealed with the current one. */
  readonly settled: () => void;
}

/**
 * The keys that a command printed, one on each line: the first is the current one, the others are earlier ones. Each is 32 bytes in hex
 * or base64.
 */
export function keysOfCommand(printed: string, keyFile: string): SealingKeys {
  const keys = printed
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')
    .map((line) => new SealingKey(bytesOf(line)));
  const [current] = keys;
  if (current === undefined) throw noKey('printed nothing');
  // A home whose key was a file before has what is sealed with that one.
  const before = existsSync(keyFile) ? [new SealingKey(readKeyFile(keyFile))] : [];
  return { current, all: [...keys, ...before], settled: () => rmSync(keyFile, { force: true }) };
}

/** The key in a file, which is made where there is none. `fresh` makes another one, which takes its place once all is sealed with it. */
export function keysOfFile(file: string, fresh = false): SealingKeys {
  const next = `${file}.next`;
  if (!fresh && !existsSync(file) && !existsSync(next)) writeKeyFile(file);
  if (fresh) {
    rmSync(next, { force: true });
    writeKeyFile(next);
  }
  const all = [file, next]
    .filter((each) => existsSync(each))
    .map((each) => new SealingKey(readKeyFile(each)));
  // One that was left by a rotation that was killed is finished, whichever of the two values are sealed with.
  return {
    current: all.at(-1)!,
    all,
    settled: () => {
      if (existsSync(next)) renameSync(next, file);
    },
  };
}

function bytesOf(text: string): Buffer {
  const bytes = /^[0-9a-f]{64}$/i.test(text) ? Buffer.from(text, 'hex') : Buffer.from(text, 'base64');
  if (bytes.length !== keyBytes) throw noKey('printed a line that is not 32 bytes in hex or base64');
  return bytes;
}

const noKey = (why: string): CoppiceError =>
  new CoppiceError('invalid_argument', `gateway.key_command of config.json ${why}`, {
    hint: 'A key can be made with: openssl rand -hex 32',
  });

const writeKeyFile = (file: string): void =>
  writeFileSync(file, randomBytes(keyBytes), { mode: 0o600, flag: 'wx', flush: true });

function readKeyFile(file: string): Buffer {
  const key = readFileSync(file);
  if (key.length !== keyBytes)
    throw new CoppiceError('corrupt', `${file} does not hold the key of the secrets`, {
      hint: 'Bring it back from a backup, or move it away and set every secret again.',
    });
  return key;
}
