import type { NameRule } from '@coppice/protocol';

/** The port that gives sandboxes their network and holds their policy. */
export interface NetworkPolicy {
  /** Public addresses. Private ones, and the host, are not the internet. */
  readonly allowInternet: boolean;
  /** Sandboxes of this home reach each other where both allow it. */
  readonly allowInterSandbox: boolean;
  /** TCP and UDP ports that may be reached; empty: all that the other fields allow. */
  readonly allowedPorts: readonly number[];
  /**
   * Addresses or CIDR blocks. An allow list that is not empty is the whole outside: it opens these, private ones
   * included and without allowInternet, and nothing else. Other sandboxes are allowInterSandbox's matter alone.
   */
  readonly allow: readonly string[];
  /** Wins over everything, other sandboxes included. */
  readonly deny: readonly string[];
  /**
   * TCP ports of the host itself that it reaches at its gateway's address, and at no other address of the host. Nothing else
   * opens the host; allowedPorts does not narrow these.
   */
  readonly allowHostPorts: readonly number[];
  /** What may be reached by name, through the gateway. */
  readonly names: readonly NameRule[];
  readonly deniedNames: readonly NameRule[];
  /** Connections to names that no rule speaks of are held until somebody answers. It opens nothing else. */
  readonly asks?: boolean;
  /** Secrets that the gateway puts into its requests. */
  readonly secrets?: readonly string[];
}

/** The port to the process that carries connections to names. */
export interface NameGateway {
  /** Holds a sandbox to its names, and answers where the host's rules have to lead what it sends to them. */
  admit(sandboxId: string, place: NamePlace, policy: NetworkPolicy): Promise<NameDoors>;
  /** Ends what the sandbox reached by name. Idempotent. */
  dismiss(sandboxId: string): Promise<void>;
  /** Dismisses all but these. */
  retain(keep: ReadonlySet<string>): Promise<void>;
}

/** Ports of the host. */
export interface NameDoors {
  /** Takes what is asked of any resolver. */
  readonly dns: number;
  /** For each port of an address that stands for a name, the one that takes its connections. */
  readonly ports: ReadonlyMap<number, number>;
}

/** What a sandbox and the gateway know each other by. */
export interface NamePlace {
  readonly address: string;
  /** The block of addresses that stand for names. */
  readonly names: string;
  /** The host, as sandboxes see it. */
  readonly host: string;
}

export interface Attachment {
  /** The address of the sandbox, or null where its policy gives it no network. */
  readonly address: string | null;
}

/**
 * `when-open`: a closed policy has no link. For drivers that take their links at the start and never again: `fresh` makes
 * one whatever the policy, and `kept` changes the rules around the one there is.
 */
export type LinkUse = 'when-open' | 'fresh' | 'kept';

export interface Network {
  /** A persistent namespace for drivers that need one before the start. Idempotent. */
  createNamespace(sandboxId: string): Promise<string>;
  /**
   * Makes the namespace obey the policy: first the rules, then the link, so that no packet leaves unjudged. Called at each
   * start and at each change of policy; idempotent. The address stays the sandbox's own until release.
   */
  apply(sandboxId: string, netns: string, policy: NetworkPolicy, link?: LinkUse): Promise<Attachment>;
  /** Removes link, rules and namespace of a sandbox and frees its address. Idempotent. */
  release(sandboxId: string): Promise<void>;
  /** Removes all that belongs to this home and not to one of these sandboxes. */
  sweep(keep: ReadonlySet<string>): Promise<void>;
}
