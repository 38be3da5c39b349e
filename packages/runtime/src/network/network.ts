/** The port that gives sandboxes their network and holds their policy. */
export interface NetworkPolicy {
  readonly allowInternet: boolean;
  readonly allowInterSandbox: boolean;
  /** TCP and UDP ports that may be reached outside; empty: all that the other fields allow. */
  readonly allowedPorts: readonly number[];
  /** Addresses or CIDR blocks. Deny wins; an allow list that is not empty lets nothing else out. */
  readonly allow: readonly string[];
  readonly deny: readonly string[];
}

export interface Attachment {
  /** The address of the sandbox, or null where its policy gives it no network. */
  readonly address: string | null;
}

export interface Network {
  /** A persistent namespace for drivers that need one before the start. Idempotent. */
  createNamespace(sandboxId: string): Promise<string>;
  /**
   * Makes the namespace obey the policy: first the rules, then the link, so that no packet leaves unjudged. Called at each
   * start and at each change of policy; idempotent. The address stays the sandbox's own until release.
   */
  apply(sandboxId: string, netns: string, policy: NetworkPolicy): Promise<Attachment>;
  /** Removes link, rules and namespace of a sandbox and frees its address. Idempotent. */
  release(sandboxId: string): Promise<void>;
  /** Removes all that belongs to this home and not to one of these sandboxes. */
  sweep(keep: ReadonlySet<string>): Promise<void>;
}
