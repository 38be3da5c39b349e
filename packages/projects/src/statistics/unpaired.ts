import type { Interval } from './interval.ts';
import { mean } from './paired.ts';
import { normalTail, studentTail, studentUpper } from './special-functions.ts';

export interface Welch extends Interval {
  readonly t: number;
  readonly df: number;
  readonly p: number;
}

/** Welch's test of two means, first minus second, without the assumption that both scatter alike. */
export function welch(first: readonly number[], second: readonly number[]): Welch {
  const [va, vb] = [variance(first) / first.length, variance(second) / second.length];
  const estimate = mean(first) - mean(second);
  const error = Math.sqrt(va + vb);
  const df = (va + vb) ** 2 / (va ** 2 / (first.length - 1) + vb ** 2 / (second.length - 1));
  const t = estimate / error;
  const half = studentUpper(0.025, df) * error;
  return {
    estimate,
    low: estimate - half,
    high: estimate + half,
    t,
    df,
    p: 2 * studentTail(Math.abs(t), df),
  };
}

const variance = (values: readonly number[]): number => {
  const centre = mean(values);
  return values.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (values.length - 1);
};

export interface MannWhitney {
  /** Of the first: in how many pairs it is the larger, ties as a half. */
  readonly u: number;
  readonly p: number;
}

/** The rank test of Mann and Whitney, two-sided: exact for small samples without ties, else by the normal distribution. */
export function mannWhitney(first: readonly number[], second: readonly number[]): MannWhitney {
  const [n1, n2] = [first.length, second.length];
  let u = 0;
  for (const a of first) for (const b of second) u += a > b ? 1 : a === b ? 0.5 : 0;
  const larger = Math.max(u, n1 * n2 - u);
  const counts = tieCounts([...first, ...second]);
  const hasTies = counts.some((count) => count > 1);
  if (!hasTies && Math.min(n1, n2) <= 8) return { u, p: Math.min(1, 2 * exactTail(larger, n1, n2)) };
  const n = n1 + n2;
  const ties = counts.reduce((sum, count) => sum + (count ** 3 - count), 0);
  const spread = Math.sqrt(((n1 * n2) / 12) * (n + 1 - ties / (n * (n - 1))));
  const z = (larger - (n1 * n2) / 2 - 0.5) / spread;
  return { u, p: Math.min(1, 2 * normalTail(z)) };
}

function tieCounts(values: readonly number[]): number[] {
  const counts = new Map<number, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts.values()];
}

/** The chance of a U that is at least so large, by counting every order of both samples. */
function exactTail(u: number, n1: number, n2: number): number {
  // ways[j][k]: orders of i values of the first and j of the second whose U is k; i grows.
  let ways = Array.from({ length: n2 + 1 }, () => new Float64Array(n1 * n2 + 1));
  for (const row of ways) row[0] = 1;
  for (let i = 1; i <= n1; i += 1) {
    const next = Array.from({ length: n2 + 1 }, () => new Float64Array(n1 * n2 + 1));
    next[0]![0] = 1;
    for (let j = 1; j <= n2; j += 1)
      for (let k = 0; k <= i * j; k += 1)
        // The largest value is of the first, and so above all j of the second, or it is of the second.
        next[j]![k] = (k >= j ? ways[j]![k - j]! : 0) + next[j - 1]![k]!;
    ways = next;
  }
  const row = ways[n2]!;
  const all = row.reduce((sum, count) => sum + count, 0);
  return row.slice(Math.ceil(u)).reduce((sum, count) => sum + count, 0) / all;
}
