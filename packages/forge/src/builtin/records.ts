import type { Check, Issue, Review } from '@coppice/protocol';

export interface PullRecord {
  readonly repositoryId: string;
  readonly number: number;
  readonly title: string;
  readonly body: string;
  readonly state: 'open' | 'closed' | 'merged';
  readonly head: string;
  readonly base: string;
  readonly draft: boolean;
  /** The last commit of the head that was seen; it stays when the branch is gone. */
  readonly headSha: string;
  readonly mergeSha: string | null;
  /** A merge that has begun: the commit the base is to become, and what it was. */
  readonly plannedSha: string | null;
}

export interface ReviewRecord extends Review {
  readonly pull: number;
}

/**
 * What the built-in forge remembers beside git. Numbers count up per repository, for issues and pull requests together. At most one
 * pull request from a head to a base is open: `insertPull` throws `name_taken`.
 */
export interface ForgeRecords {
  issue(repositoryId: string, number: number): Omit<Issue, 'url'> | undefined;
  issues(repositoryId: string): Omit<Issue, 'url'>[];
  insertIssue(repositoryId: string, issue: Omit<Issue, 'url' | 'id' | 'state'>): number;
  closeIssue(repositoryId: string, number: number): void;
  /** Says the number of the comment. */
  insertComment(repositoryId: string, issue: number, body: string): number;
  comments(repositoryId: string, issue: number): { readonly id: number; readonly body: string }[];

  pull(repositoryId: string, number: number): PullRecord | undefined;
  pulls(repositoryId: string): PullRecord[];
  openPull(repositoryId: string, head: string): PullRecord | undefined;
  insertPull(pull: Omit<PullRecord, 'number' | 'state' | 'mergeSha' | 'plannedSha'>): number;
  updatePull(
    repositoryId: string,
    number: number,
    change: Partial<Pick<PullRecord, 'title' | 'body' | 'state' | 'headSha' | 'mergeSha' | 'plannedSha'>>,
  ): void;

  checks(repositoryId: string, sha: string): Check[];
  putCheck(repositoryId: string, sha: string, check: Check): void;
  reviews(repositoryId: string, pull: number): Review[];
  insertReview(repositoryId: string, review: Omit<ReviewRecord, 'id'>): number;
}

/** The instants of a merge at which a crash must do no harm. */
export type MergeStep = 'forge-merge.recorded' | 'forge-merge.moved' | 'forge-merge.committed';
