/** Of one series of measurements, in milliseconds unless its row says otherwise. */
export interface Summary {
  readonly count: number;
  readonly median: number;
  readonly p95: number;
}

export const summarize = (samples: readonly number[]): Summary => {
  if (samples.length === 0) throw new Error('nothing was measured');
  const sorted = samples.toSorted((a, b) => a - b);
  return { count: sorted.length, median: quantile(sorted, 0.5), p95: quantile(sorted, 0.95) };
};

/** Between the two nearest samples in proportion, so that a few samples do not make the worst one the p95. */
const quantile = (sorted: readonly number[], share: number): number => {
  const position = (sorted.length - 1) * share;
  const below = Math.floor(position);
  const low = sorted[below]!;
  const high = sorted[Math.min(below + 1, sorted.length - 1)]!;
  return low + (high - low) * (position - below);
};
