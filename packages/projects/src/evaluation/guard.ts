import { canaryEvidence } from '../statistics/paired.ts';
import { decidingEvidence } from './gate.ts';

/** A share of failures that is never 0 or 1, so that one failure is no certainty. */
export const baselineRate = (failures: number, runs: number): number =>
  Math.min(0.9, Math.max(0.02, (failures + 1) / (runs + 2)));

export interface GuardVerdict {
  readonly isWorse: boolean;
  readonly evidence: number;
  readonly said: string;
}

/** Whether an agent in production fails more often than what it was measured against. May be asked after every run. */
export function guard(failures: number, runs: number, baseline: number): GuardVerdict {
  const evidence = canaryEvidence(failures, runs, baseline);
  return {
    isWorse: evidence >= decidingEvidence,
    evidence,
    said: `${failures} of ${runs} runs failed, and ${(baseline * 100).toFixed(1)} % were to be expected (evidence ${evidence.toPrecision(3)}, ${decidingEvidence} decides)`,
  };
}
