import { readFileSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol';
import type { CredentialSource, Credentials } from './credentials.ts';
import { HttpExchange } from './http-exchange.ts';
import { registryHost } from './registry-address.ts';
import { RegistryClient } from './registry-client.ts';

interface RegistrySettings {
  /** Hosts that are asked first for what the registry has, in this order. */
  readonly mirrors?: readonly string[];
  /** A file with the certificates of authorities that sign for the registry and its mirrors. */
  readonly ca?: string;
}

export interface RegistriesOptions {
  readonly credentials: CredentialSource;
  /** By the name that stands in names of images. */
  readonly settings?: Readonly<Record<string, RegistrySettings>>;
  readonly idleMs?: number;
}

/** All registries that images come from and go to. */
export class Registries {
  readonly #options: RegistriesOptions;
  readonly #exchanges = new Map<string, HttpExchange>();

  constructor(options: RegistriesOptions) {
    this.#options = options;
  }

  /**
   * The registry itself, to write to and to log in to, with the login that is kept for it unless another is given. A client is for
   * one task: it keeps what it was let in with.
   */
  client(registry: string, login?: Credentials): RegistryClient {
    const host = registryHost(registry);
    if (login === undefined) return this.#client(registry, host, registry);
    const credentials = { find: async () => login };
    return new RegistryClient({ registry, host }, { credentials, exchange: this.#exchange(registry) });
  }

  /** Whom to read from: mirrors first. */
  readers(registry: string): { readonly host: string; readonly client: RegistryClient }[] {
    const mirrors = this.#options.settings?.[registry]?.mirrors ?? [];
    return [
      // A mirror gets what is kept for it by name, never the login of what it mirrors.
      ...mirrors.map((host) => ({ host, client: this.#client(host, host, registry) })),
      { host: registryHost(registry), client: this.client(registry) },
    ];
  }

  close(): void {
    for (const exchange of this.#exchanges.values()) exchange.close();
  }

  #client(registry: string, host: string, settingsOf: string): RegistryClient {
    const { credentials } = this.#options;
    return new RegistryClient({ registry, host }, { credentials, exchange: this.#exchange(settingsOf) });
  }

  #exchange(registry: string): HttpExchange {
    const known = this.#exchanges.get(registry);
    if (known !== undefined) return known;
    const { settings, idleMs } = this.#options;
    const file = settings?.[registry]?.ca;
    const exchange = new HttpExchange({
      ...(file === undefined ? {} : { authorities: [readAuthorities(file)] }),
      ...(idleMs === undefined ? {} : { idleMs }),
    });
    this.#exchanges.set(registry, exchange);
    return exchange;
  }
}

function readAuthorities(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    throw new CoppiceError(
      'invalid_argument',
      `the certificates in ${file} cannot be read: ${(cause as Error).message}`,
      {
        hint: 'Correct `ca` of the registry in config.json.',
        cause,
      },
    );
  }
}
