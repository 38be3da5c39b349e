import type { Check, Issue, IssueComment, mergeMethods, Pull, Review } from '@coppice/protocol';

export type MergeMethod = (typeof mergeMethods)[number];

export interface Branch {
  readonly name: string;
  readonly sha: string;
}

export interface NewPull {
  readonly head: string;
  readonly base: string;
  readonly title: string;
  readonly body: string;
  readonly draft?: boolean;
}

export interface MergeRequest {
  /** Nothing is merged when the head is another commit by now. */
  readonly expectedHead: string;
  readonly method: MergeMethod;
  readonly title?: string;
  readonly message?: string;
}

/** How a merge that did not happen is told from a failure: `details.reason` of a CoppiceError `conflict`. */
export type MergeObstacle = 'merge_conflict' | 'head_moved';

export interface WebhookRequest {
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: Uint8Array;
}

export interface WebhookEvent {
  readonly type: 'push' | 'pull_request' | 'check' | 'review' | 'issue' | 'other';
  readonly action: string | null;
  /** Where the event names one. */
  readonly pull: number | null;
}

export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
}

/**
 * One repository of one forge. Every write is sent once: whoever does not know whether it arrived looks first (`findPull`,
 * `branch`) and sends again then. Failures are CoppiceErrors: `not_found`, `name_taken`, `conflict` (see MergeObstacle),
 * `wrong_state`, `unauthenticated`, `forbidden`, `rate_limited`, `unavailable`, and `corrupt` for an answer that makes no sense.
 */
export interface Forge {
  defaultBranch(options?: CallOptions): Promise<string>;
  issue(id: string, options?: CallOptions): Promise<Issue>;
  comment(issueId: string, body: string, options?: CallOptions): Promise<IssueComment>;

  /** Undefined where there is none. */
  branch(name: string, options?: CallOptions): Promise<Branch | undefined>;
  /** `name_taken` where there is one already, whatever it points to. */
  createBranch(name: string, sha: string, options?: CallOptions): Promise<Branch>;
  deleteBranch(name: string, options?: CallOptions): Promise<void>;
  /** How many commits the head has that the base lacks, and the other way round. */
  compare(base: string, head: string, options?: CallOptions): Promise<{ ahead: number; behind: number }>;

  /** `name_taken` while another one from the same head to the same base is open. */
  createPull(pull: NewPull, options?: CallOptions): Promise<Pull>;
  /** The open one from this branch. */
  findPull(head: string, options?: CallOptions): Promise<Pull | undefined>;
  pull(number: number, options?: CallOptions): Promise<Pull>;
  updatePull(
    number: number,
    change: { readonly title?: string; readonly body?: string },
    options?: CallOptions,
  ): Promise<Pull>;
  closePull(number: number, options?: CallOptions): Promise<Pull>;
  mergePull(number: number, request: MergeRequest, options?: CallOptions): Promise<{ sha: string }>;

  /** Of a commit, the newest of each name. None is an empty list, which is not the same as all is well. */
  checks(sha: string, options?: CallOptions): Promise<Check[]>;
  reportCheck(sha: string, check: Check, options?: CallOptions): Promise<void>;
  /** The newest of each reviewer. */
  reviews(pull: number, options?: CallOptions): Promise<Review[]>;

  /** Throws `unauthenticated` unless whoever sent it knows the secret. */
  readWebhook(request: WebhookRequest, secret: string): WebhookEvent;
}
