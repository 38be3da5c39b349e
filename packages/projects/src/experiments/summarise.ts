import type { Experiment } from '@coppice/protocol';
import { passGate } from '../evaluation/gate.ts';
import { type Pairs, wilson } from '../statistics/interval.ts';

export interface ScoredTrial {
  readonly variant: string;
  readonly caseId: string;
  readonly passed: boolean;
  readonly score: number | null;
  readonly costMicros: number;
  readonly durationMs: number;
}

export type VariantSummary = Experiment['variants'][number];

/** What the trials that are done say: each variant alone, and against the first, which is the baseline. */
export function summarise(
  names: readonly string[],
  trials: readonly ScoredTrial[],
  rule: 'anytime' | 'fixed',
): VariantSummary[] {
  const byCase = names.map((name) => casesOf(trials.filter(({ variant }) => variant === name)));
  return names.map((name, index) => {
    const own = trials.filter(({ variant }) => variant === name);
    const passed = own.filter((trial) => trial.passed).length;
    const { low, high } = wilson(passed, own.length);
    return {
      name,
      n: own.length,
      passed,
      rate: own.length === 0 ? 0 : passed / own.length,
      low,
      high,
      cost_usd: own.reduce((sum, { costMicros }) => sum + costMicros, 0) / 1e6,
      mean_ms: own.length === 0 ? 0 : own.reduce((sum, { durationMs }) => sum + durationMs, 0) / own.length,
      gate: index === 0 ? null : passGate(pairsOf(byCase[index]!, byCase[0]!), rule),
    };
  });
}

/** A case counts once however often it ran: it passed where it passed in more than half of its epochs. */
function casesOf(trials: readonly ScoredTrial[]): Map<string, boolean> {
  const tallies = new Map<string, { passed: number; of: number }>();
  for (const { caseId, passed } of trials) {
    const tally = tallies.get(caseId) ?? { passed: 0, of: 0 };
    tallies.set(caseId, { passed: tally.passed + (passed ? 1 : 0), of: tally.of + 1 });
  }
  return new Map([...tallies].map(([caseId, { passed, of }]) => [caseId, passed * 2 > of]));
}

/** Only cases that both did: a case that is missing is not one that passed. */
function pairsOf(first: ReadonlyMap<string, boolean>, second: ReadonlyMap<string, boolean>): Pairs {
  const counts = { bothPassed: 0, onlyFirst: 0, onlySecond: 0, neitherPassed: 0 };
  for (const [caseId, passed] of first) {
    const other = second.get(caseId);
    if (other === undefined) continue;
    if (passed) counts[other ? 'bothPassed' : 'onlyFirst'] += 1;
    else counts[other ? 'onlySecond' : 'neitherPassed'] += 1;
  }
  return counts;
}

/** Of the best of n: most cases passed, then the higher score, then the cheaper, then the quicker. */
export function bestOf(names: readonly string[], trials: readonly ScoredTrial[]): string | undefined {
  const rank = names.map((name) => {
    const own = trials.filter(({ variant }) => variant === name);
    return {
      name,
      passed: own.filter((trial) => trial.passed).length,
      score: own.reduce((sum, { score }) => sum + (score ?? 0), 0),
      cost: own.reduce((sum, { costMicros }) => sum + costMicros, 0),
      ms: own.reduce((sum, { durationMs }) => sum + durationMs, 0),
    };
  });
  return rank
    .filter(({ passed }) => passed > 0)
    .sort((a, b) => b.passed - a.passed || b.score - a.score || a.cost - b.cost || a.ms - b.ms)[0]?.name;
}
