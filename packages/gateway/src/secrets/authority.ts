import type { KeyObject } from 'node:crypto';
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  randomBytes,
  sign,
} from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { createSecureContext, type SecureContext } from 'node:tls';
import { bits, boolean, context, integer, octets, oid, sequence, set, text, time } from './der.ts';

const dayMs = 24 * 60 * 60 * 1000;
const authorityDays = 3650;
const leafDays = 2;
/** A leaf is made anew when it has less than this left. */
const renewDays = 1;
const mostLeaves = 1_000;

const ids = {
  commonName: '2.5.4.3',
  ecdsaSha256: '1.2.840.10045.4.3.2',
  basicConstraints: '2.5.29.19',
  keyUsage: '2.5.29.15',
  extendedKeyUsage: '2.5.29.37',
  serverAuth: '1.3.6.1.5.5.7.3.1',
  alternativeName: '2.5.29.17',
  subjectKey: '2.5.29.14',
  authorityKey: '2.5.29.35',
  nameConstraints: '2.5.29.30',
};

interface Leaf {
  readonly context: SecureContext;
  readonly untilMs: number;
}

/**
 * Signs for the hosts of secrets. Its key is in this home alone, and only sandboxes that use a secret trust it. Each of them trusts it
 * for the hosts of its own secrets alone: whoever stole the key could not show a sandbox another host.
 */
export class Authority {
  readonly #key: KeyObject;
  readonly #leafKey: KeyObject;
  readonly #leaves = new Map<string, Leaf>();
  readonly #now: () => number;

  private constructor(key: KeyObject, now: () => number) {
    this.#key = key;
    this.#now = now;
    this.#leafKey = newKey();
  }

  /** Reads it from its file, or makes it. */
  static open(file: string, now: () => number = Date.now): Authority {
    try {
      const key = newKey().export({ type: 'pkcs8', format: 'pem' });
      writeFileSync(file, key, { mode: 0o600, flag: 'wx', flush: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    return new Authority(createPrivateKey(readFileSync(file, 'utf8')), now);
  }

  /** What a sandbox trusts that has secrets of these hosts. A host such as `*.example.com` is every name below. */
  certificateFor(hosts: readonly string[]): string {
    const nowMs = this.#now();
    return pemOf(
      signed({
        subject: authorityName,
        issuer: authorityName,
        publicKey: createPublicKey(this.#key),
        issuerKey: this.#key,
        fromMs: nowMs - dayMs,
        untilMs: nowMs + authorityDays * dayMs,
        extensions: [
          // It signs servers and no further authorities.
          extension(ids.basicConstraints, sequence(boolean(true), integer(Buffer.from([0]))), true),
          extension(ids.keyUsage, bits(Buffer.from([0x06]), 1), true),
          extension(ids.extendedKeyUsage, sequence(oid(ids.serverAuth))),
          extension(ids.nameConstraints, constraints(hosts), true),
        ],
      }),
    );
  }

  /** What shows a sandbox that it speaks to this host. */
  contextFor(name: string): SecureContext {
    const known = this.#leaves.get(name);
    if (known !== undefined && known.untilMs - this.#now() > renewDays * dayMs) return known.context;
    const untilMs = this.#now() + leafDays * dayMs;
    const cert = pemOf(
      signed({
        subject: name.length <= 64 ? name : 'coppice',
        issuer: authorityName,
        publicKey: createPublicKey(this.#leafKey),
        issuerKey: this.#key,
        fromMs: this.#now() - dayMs,
        untilMs,
        extensions: [
          extension(ids.basicConstraints, sequence(), true),
          extension(ids.keyUsage, bits(Buffer.from([0x80]), 7), true),
          extension(ids.extendedKeyUsage, sequence(oid(ids.serverAuth))),
          extension(ids.alternativeName, sequence(context(2, Buffer.from(name, 'latin1'), false))),
        ],
      }),
    );
    const key = this.#leafKey.export({ type: 'pkcs8', format: 'pem' }) as string;
    const leaf = { context: createSecureContext({ key, cert }), untilMs };
    if (this.#leaves.size >= mostLeaves) this.#leaves.clear();
    this.#leaves.set(name, leaf);
    return leaf.context;
  }
}

const authorityName = 'Coppice gateway of this machine';

const newKey = (): KeyObject => generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;

/** These names and what is below them, and no address at all. A list of none would allow every name, so there is always one. */
const constraints = (hosts: readonly string[]): Buffer => {
  const names = hosts.length === 0 ? ['none.invalid'] : hosts.map((host) => host.replace(/^\*\./, ''));
  const subtree = (kind: number, value: Buffer): Buffer => sequence(context(kind, value, false));
  const permitted = [...new Set(names)].map((name) => subtree(generalName.dns, Buffer.from(name, 'latin1')));
  const everyAddress = [8, 32].map((size) => subtree(generalName.address, Buffer.alloc(size)));
  return sequence(context(0, Buffer.concat(permitted)), context(1, Buffer.concat(everyAddress)));
};

const generalName = { dns: 2, address: 7 };

interface Statement {
  readonly subject: string;
  readonly issuer: string;
  readonly publicKey: KeyObject;
  readonly issuerKey: KeyObject;
  readonly fromMs: number;
  readonly untilMs: number;
  readonly extensions: readonly Buffer[];
}

function signed(statement: Statement): Buffer {
  const algorithm = sequence(oid(ids.ecdsaSha256));
  const spki = (key: KeyObject): Buffer => key.export({ type: 'spki', format: 'der' }) as Buffer;
  const issuerPublic = createPublicKey(statement.issuerKey);
  const extensions = [
    ...statement.extensions,
    extension(ids.subjectKey, octets(keyId(spki(statement.publicKey)))),
    extension(ids.authorityKey, sequence(context(0, keyId(spki(issuerPublic)), false))),
  ];
  const serial = randomBytes(16);
  serial[0] = (serial[0]! & 0x7f) | 0x40;
  const body = sequence(
    context(0, integer(Buffer.from([2]))),
    integer(serial),
    algorithm,
    nameOf(statement.issuer),
    sequence(time(new Date(statement.fromMs)), time(new Date(statement.untilMs))),
    nameOf(statement.subject),
    spki(statement.publicKey),
    context(3, sequence(...extensions)),
  );
  return sequence(body, algorithm, bits(sign('sha256', body, statement.issuerKey)));
}

const nameOf = (commonName: string): Buffer => sequence(set(sequence(oid(ids.commonName), text(commonName))));

const extension = (id: string, value: Buffer, critical = false): Buffer =>
  sequence(oid(id), ...(critical ? [boolean(true)] : []), octets(value));

/** Which key signs for which: the first 20 bytes of a digest of it. */
const keyId = (spki: Buffer): Buffer => createHash('sha256').update(spki).digest().subarray(0, 20);

const pemOf = (der: Buffer): string =>
  `-----BEGIN CERTIFICATE-----\n${der.toString('base64').replace(/.{1,64}/g, '$&\n')}-----END CERTIFICATE-----\n`;
