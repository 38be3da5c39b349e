/** Who we are to a registry. */
export type Credentials =
  | { readonly kind: 'password'; readonly username: string; readonly password: string }
  /** What some registries hand out instead of keeping the password: good for getting tokens, and for nothing else. */
  | { readonly kind: 'identity-token'; readonly token: string };

/** Where logins are kept. */
export interface CredentialSource {
  find(registry: string, signal?: AbortSignal): Promise<Credentials | undefined>;
}

/** The first that knows the registry. */
export class CredentialSources implements CredentialSource {
  readonly #sources: readonly CredentialSource[];

  constructor(sources: readonly CredentialSource[]) {
    this.#sources = sources;
  }

  async find(registry: string, signal?: AbortSignal): Promise<Credentials | undefined> {
    for (const source of this.#sources) {
      const found = await source.find(registry, signal);
      if (found !== undefined) return found;
    }
    return undefined;
  }
}
