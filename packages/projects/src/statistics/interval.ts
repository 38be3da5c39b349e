import { normalUpper } from './special-functions.ts';

/** An estimate with the range that holds the truth in 95 of 100 cases, unless another share is asked for. */
export interface Interval {
  readonly estimate: number;
  readonly low: number;
  readonly high: number;
}

/** Wilson's interval of a share: honest for few cases and near 0 and 1. */
export function wilson(hits: number, of: number, confidence = 0.95): Interval {
  if (of === 0) return { estimate: Number.NaN, low: 0, high: 1 };
  const z = normalUpper((1 - confidence) / 2);
  const p = hits / of;
  const centre = (p + (z * z) / (2 * of)) / (1 + (z * z) / of);
  const half = (z / (1 + (z * z) / of)) * Math.sqrt((p * (1 - p)) / of + (z * z) / (4 * of * of));
  return { estimate: p, low: Math.max(0, centre - half), high: Math.min(1, centre + half) };
}

/** How two variants did on the same cases. */
export interface Pairs {
  readonly bothPassed: number;
  readonly onlyFirst: number;
  readonly onlySecond: number;
  readonly neitherPassed: number;
}

/** Newcombe's interval of the difference of two shares, first minus second, of different cases. */
export function newcombe(first: readonly [number, number], second: readonly [number, number]): Interval {
  return squareAndAdd(wilson(...first), wilson(...second), 0);
}

/** The same for shares of the same cases (his method 10), which is narrower where the variants agree. */
export function newcombePaired({ bothPassed, onlyFirst, onlySecond, neitherPassed }: Pairs): Interval {
  const n = bothPassed + onlyFirst + onlySecond + neitherPassed;
  const [a, b, c, d] = [bothPassed, onlyFirst, onlySecond, neitherPassed];
  const margins = (a + b) * (c + d) * (a + c) * (b + d);
  const covariance = a * d - b * c;
  const corrected = covariance > 0 ? Math.max(covariance - n / 2, 0) : covariance;
  const phi = margins === 0 ? 0 : corrected / Math.sqrt(margins);
  return squareAndAdd(wilson(a + b, n), wilson(a + c, n), phi);
}

function squareAndAdd(first: Interval, second: Interval, phi: number): Interval {
  const estimate = first.estimate - second.estimate;
  const span = (x: number, y: number): number => Math.sqrt(Math.max(0, x * x - 2 * phi * x * y + y * y));
  return {
    estimate,
    low: Math.max(-1, estimate - span(first.estimate - first.low, second.high - second.estimate)),
    high: Math.min(1, estimate + span(first.high - first.estimate, second.estimate - second.low)),
  };
}
