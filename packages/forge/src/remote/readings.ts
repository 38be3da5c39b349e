import { CoppiceError, type Issue, type Pull, type Review, ticketTypes } from '@coppice/protocol';
import type { MergeObstacle, MergeRequest } from '../forge.ts';

/** What labels say of an issue; forges have no types of their own. */
export function kindOf(labels: readonly string[]): Pick<Issue, 'type' | 'critical'> {
  const words = labels.map((label) => label.toLowerCase());
  const type = ticketTypes.find((each) => words.some((word) => word === each || word.endsWith(`/${each}`)));
  const isEnhancement = words.includes('documentation');
  return {
    type: type ?? (isEnhancement ? 'docs' : 'feature'),
    critical: words.some((word) => /(^|[/: ])(critical|urgent|p0)$/.test(word)),
  };
}

/** The newest of each reviewer; a comment does not take back what its author decided before. */
export function newestReviews(reviews: readonly (Review & { readonly isDismissed?: boolean })[]): Review[] {
  const newest = new Map<string, Review>();
  for (const { isDismissed = false, ...review } of reviews) {
    if (isDismissed) newest.delete(review.author);
    else if (review.state !== 'commented' || !newest.has(review.author)) newest.set(review.author, review);
  }
  return [...newest.values()];
}

/** What a refused merge means, from what the pull request is now: done already by a try before, moved, in conflict, or something else. */
export function settleRefusedMerge(
  pull: Pull,
  { expectedHead }: MergeRequest,
  refusal: CoppiceError,
): { readonly sha: string } {
  if (pull.state === 'merged' && pull.head_sha === expectedHead && pull.merge_sha !== null)
    return { sha: pull.merge_sha };
  if (pull.state !== 'open')
    throw new CoppiceError('wrong_state', `pull request ${pull.number} is ${pull.state}`, {
      hint: 'Open another one from its branch.',
    });
  if (pull.head_sha !== expectedHead) throw headMoved(pull, expectedHead);
  if (pull.mergeable === false) throw inConflict(pull);
  throw refusal;
}

export const headMoved = ({ head, head_sha }: Pull, expected: string): CoppiceError =>
  obstacle('head_moved', `${head} is at ${head_sha} and not at ${expected}`, {
    hint: 'Look at what was added, then merge what you have looked at.',
    details: { head: head_sha },
  });

export const inConflict = ({ number, base }: Pull): CoppiceError =>
  obstacle('merge_conflict', `pull request ${number} is in conflict with ${base}`, {
    hint: 'Merge the base into the branch, settle the conflicts there, and push it.',
    details: {},
  });

const obstacle = (
  reason: MergeObstacle,
  message: string,
  { hint, details }: { readonly hint: string; readonly details: object },
): CoppiceError => new CoppiceError('conflict', message, { hint, details: { reason, ...details } });

export const taken = (what: string): CoppiceError =>
  new CoppiceError('name_taken', `there is already ${what}`);
export const missing = (what: string): CoppiceError => new CoppiceError('not_found', `there is no ${what}`);

export const nothingToReview = (head: string, base: string): CoppiceError =>
  new CoppiceError('wrong_state', `${head} has no commit that ${base} lacks`, {
    hint: 'Commit something on the branch and push it first.',
  });

/** Of one that can still be closed. */
export const closable = (pull: Pull): Pull => {
  if (pull.state !== 'merged') return pull;
  throw new CoppiceError('wrong_state', `pull request ${pull.number} is merged`);
};
