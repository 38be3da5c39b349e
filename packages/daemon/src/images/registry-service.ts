import {
  CoppiceError,
  type loginSchema,
  parseImageReference,
  type registryLoginSchema,
} from '@coppice/protocol';
import type { LoginFile, Registries } from '@coppice/runtime';
import type { z } from 'zod';

type Login = z.output<typeof registryLoginSchema>;

/** Logins to registries. */
export class RegistryService {
  readonly #registries: Registries;
  readonly #logins: LoginFile;

  constructor(registries: Registries, logins: LoginFile) {
    this.#registries = registries;
    this.#logins = logins;
  }

  list(): Promise<Login[]> {
    return this.#logins.list();
  }

  /** Kept only when the registry takes it. */
  async login(
    { registry, username, password }: z.output<typeof loginSchema>,
    signal?: AbortSignal,
  ): Promise<Login> {
    const name = nameOf(registry);
    await this.#registries.client(name, { kind: 'password', username, password }).check(signal);
    await this.#logins.set(name, username, password);
    return { registry: name, username };
  }

  async logout(registry: string): Promise<void> {
    const name = nameOf(registry);
    if (await this.#logins.remove(name)) return;
    throw new CoppiceError('not_found', `nobody logged in to ${name} here`, {
      hint: 'See `coppice images logins`. What `docker login` keeps is removed with `docker logout`.',
    });
  }
}

/** As it stands in names of images. */
const nameOf = (registry: string): string => {
  // A name alone would be read as that of an image.
  const host = /[.:[]/.test(registry) || registry === 'localhost' ? registry : undefined;
  if (host !== undefined) return parseImageReference(`${host}/x`).registry;
  throw new CoppiceError('invalid_argument', `${registry} is not the host of a registry`, {
    hint: 'Give it as in names of images: docker.io, ghcr.io, localhost:5000',
  });
};
