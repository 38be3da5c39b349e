import { trustFiles } from '@coppice/protocol';
import type { Guest, Machine } from '@coppice/runtime';

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
    await guest.write(trustFiles.authority, bytesOf(certificate), options);
    await guest.write(trustFiles.bundle, bytesOf(`${own}\n${certificate}`), options);
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
  return '';
}

async function* bytesOf(text: string): AsyncGenerator<Buffer> {
  yield Buffer.from(text);
}
