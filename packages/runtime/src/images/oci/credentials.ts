/** Who we are to a registry. */
export type Credentials =
  | { readonly kind: 'password'; readonly username: string; readonly password: string }
  /** What some registries hand out instead of keeping the password: good for getting tokens, and for nothing else. */
  | { readonly kind: 'identity-token'; readonly token: string };

/** Where logins are kept. */
export interface CredentialSource {
  find(registry: string, signal?: AbortSignal): Promise<Credentials | undefined>;
}
