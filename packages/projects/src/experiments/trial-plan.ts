import { Random } from '../statistics/random.ts';

export interface PlannedTrial {
  /** From 1 on, in the order in which they run. */
  readonly n: number;
  readonly variant: string;
  readonly caseId: string;
  readonly epoch: number;
}

/**
 * Every variant on every case, in every epoch. Variants of one case run next to each other and in an order of their own, so
 * that what changes on the machine over time hits all of them alike.
 */
export function planTrials(
  variants: readonly string[],
  caseIds: readonly string[],
  { epochs, seed }: { readonly epochs: number; readonly seed: number },
): PlannedTrial[] {
  const random = new Random(seed);
  const blocks = Array.from({ length: epochs }, (_none, epoch) =>
    random.shuffled(caseIds).map((caseId) => ({ caseId, epoch: epoch + 1 })),
  ).flat();
  return blocks
    .flatMap((block) => random.shuffled(variants).map((variant) => ({ ...block, variant })))
    .map((trial, index) => ({ n: index + 1, ...trial }));
}
