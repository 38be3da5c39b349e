import { rootCertificates } from 'node:tls';
import { trustFiles } from '@coppice/protocol';
import type { Cover, Guest, Machine } from '@coppice/runtime';
import type { Log } from '../host/log.ts';
import type { Trust } from './gateway-service.ts';
import { javaTrustStore } from './java-trust-store.ts';

/** Where images keep the authorities that their programs trust: Debian and Alpine, Fedora, SUSE. Some lead to others of them. */
const stores = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/pki/tls/cert.pem',
  '/etc/ssl/cert.pem',
  '/etc/ssl/ca-bundle.pem',
  '/var/lib/ca-certificates/ca-bundle.pem',
];
const javaStores = [
  '/etc/ssl/certs/java/cacerts',
  '/etc/pki/ca-trust/extracted/java/cacerts',
  '/etc/pki/java/cacerts',
  '/var/lib/ca-certificates/java-cacerts',
];
const largestStore = 4 * 1024 * 1024;
/** What follows was added here. */
const mark = '\n# The gateway of Coppice, for the hosts of secrets\n';

interface Told {
  readonly secrets: string;
  readonly changes: number;
  /** The hosts that it trusts the gateway for. */
  readonly hosts: Promise<string>;
}

interface TrustSource {
  trustFor(secrets: readonly string[]): Promise<Trust>;
  readonly secretChanges: number;
}

/**
 * Lets programs in sandboxes with secrets trust the gateway for the hosts of these. What it writes is in memory inside, and on no disk:
 * the stores of the image are covered by mounts.
 */
export class SandboxTrust {
  readonly #source: TrustSource;
  readonly #log: Log;
  readonly #told = new WeakMap<Machine, Told>();

  constructor(source: TrustSource, log: Log) {
    this.#source = source;
    this.#log = log;
  }

  /** Once for each machine, and again where its secrets have other hosts. */
  async ensure(machine: Machine, secrets: readonly string[]): Promise<void> {
    const named = secrets.toSorted().join(' ');
    const changes = this.#source.secretChanges;
    const known = this.#told.get(machine);
    if (known === undefined || known.secrets !== named || known.changes !== changes) {
      const hosts = this.#tell(machine, secrets, known?.hosts);
      const told = { secrets: named, changes, hosts };
      this.#told.set(machine, told);
      hosts.catch(() => {
        if (this.#told.get(machine) === told) this.#told.delete(machine);
      });
    }
    await this.#told.get(machine)?.hosts;
  }

  async #tell(
    machine: Machine,
    secrets: readonly string[],
    before: Promise<string> | undefined,
  ): Promise<string> {
    const trusted = await before?.catch(() => undefined);
    const { certificate, hosts } = await this.#source.trustFor(secrets);
    const named = hosts.join(' ');
    if (trusted === named) return named;
    const covers = await write(machine.guest, certificate);
    try {
      await machine.cover(covers);
    } catch (error) {
      // Started by an earlier version. Variables lead most programs to the same.
      this.#log.warn({ err: error, sandbox: machine.id }, 'the stores of a sandbox could not be covered');
    }
    return named;
  }
}

/** What its programs are led to, and what is to stand over which store. */
async function write(guest: Guest, certificate: string): Promise<readonly Cover[]> {
  const options = { mode: 0o644, owner: 'root', createParents: true };
  const put = (path: string, content: string | Buffer) => guest.write(path, bytesOf(content), options);
  const files = new Map<string, string>();
  const covers: Cover[] = [];
  for (const place of stores) {
    const own = await storeAt(guest, place);
    if (own === undefined) continue;
    const file = files.get(own) ?? `${trustFiles.stores}/${files.size}.pem`;
    if (!files.has(own)) await put(file, `${own}${mark}${certificate}`);
    files.set(own, file);
    covers.push({ file, place });
  }
  // Programs that have authorities of their own are led here too, and must go on trusting the well-known ones.
  const [first = rootCertificates.join('\n')] = files.keys();
  const bundle = `${first}${mark}${certificate}`;
  await put(trustFiles.authority, certificate);
  await put(trustFiles.bundle, bundle);
  await put(trustFiles.java, javaTrustStore(bundle));
  await put(trustFiles.apt, `Acquire::https::CaInfo "${trustFiles.bundle}";\n`);
  return [...covers, ...javaStores.map((place) => ({ file: trustFiles.java, place }))];
}

/** As the image has it; undefined where it has none. */
async function storeAt(guest: Guest, path: string): Promise<string | undefined> {
  try {
    const parts: Buffer[] = [];
    for await (const part of guest.read(path, { length: largestStore })) parts.push(part);
    return Buffer.concat(parts).toString('utf8').split(mark, 1)[0];
  } catch {
    return undefined;
  }
}

async function* bytesOf(text: string | Buffer): AsyncGenerator<Buffer> {
  yield Buffer.from(text);
}
