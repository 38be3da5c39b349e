import { rootCertificates } from 'node:tls';
import { trustFiles } from '@coppice/protocol';
import type { Guest, Machine } from '@coppice/runtime';
import { javaTrustStore } from './java-trust-store.ts';

/** Where images keep the authorities that they trust. */
const bundles = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/cert.pem',
];
const largestBundle = 4 * 1024 * 1024;

/** Lets programs in sandboxes with secrets trust the gateway for the hosts of these. What it writes is in memory inside, and on no disk. */
export class SandboxTrust {
  readonly #certificate: () => Promise<string>;
  readonly #told = new WeakMap<Machine, Promise<void>>();

  constructor(certificate: () => Promise<string>) {
    this.#certificate = certificate;
  }

  /** Once for each machine. */
  ensure(machine: Machine): Promise<void> {
    const known = this.#told.get(machine);
    if (known !== undefined) return known;
    const telling = this.#tell(machine.guest);
    this.#told.set(machine, telling);
    telling.catch(() => this.#told.delete(machine));
    return telling;
  }

  async #tell(guest: Guest): Promise<void> {
    const certificate = await this.#certificate();
    const own = await ownBundle(guest);
    const options = { mode: 0o644, owner: 'root', createParents: true };
    const bundle = `${own}\n${certificate}`;
    const files: readonly (readonly [string, string | Buffer])[] = [
      [trustFiles.authority, certificate],
      [trustFiles.bundle, bundle],
      [trustFiles.java, javaTrustStore(bundle)],
      [trustFiles.apt, `Acquire::https::CaInfo "${trustFiles.bundle}";\n`],
    ];
    for (const [path, content] of files) await guest.write(path, bytesOf(content), options);
  }
}

async function ownBundle(guest: Guest): Promise<string> {
  for (const path of bundles) {
    try {
      const parts: Buffer[] = [];
      for await (const part of guest.read(path, { length: largestBundle })) parts.push(part);
      return Buffer.concat(parts).toString('utf8');
    } catch {
      // An image without this one may have another, or none.
    }
  }
  // Programs that have authorities of their own are led here too, and must go on trusting the well-known ones.
  return rootCertificates.join('\n');
}

async function* bytesOf(text: string | Buffer): AsyncGenerator<Buffer> {
  yield Buffer.from(text);
}
