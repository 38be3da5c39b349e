/** What is known of a row of snapshots from a good one to a bad one. */
export type Known = ReadonlyMap<number, boolean>;

export type BisectStep =
  | { readonly kind: 'test'; readonly index: number }
  | { readonly kind: 'found'; readonly index: number }
  | { readonly kind: 'nothing'; readonly said: string };

/** Which one to look at next: both ends first, then always the middle of what is open. */
export function nextBisectStep(count: number, known: Known): BisectStep {
  if (!known.has(0)) return { kind: 'test', index: 0 };
  if (!known.has(count - 1)) return { kind: 'test', index: count - 1 };
  if (known.get(0) === false) return { kind: 'nothing', said: 'the first snapshot is bad already' };
  if (known.get(count - 1) === true) return { kind: 'nothing', said: 'the last snapshot is still good' };
  let [good, bad] = [0, count - 1];
  while (bad - good > 1) {
    const middle = Math.floor((good + bad) / 2);
    const passed = known.get(middle);
    if (passed === undefined) return { kind: 'test', index: middle };
    if (passed) good = middle;
    else bad = middle;
  }
  return { kind: 'found', index: bad };
}
