import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Machine } from './machine.ts';
import type { Finding } from './row.ts';
import type { Target } from './target.ts';

export interface TargetResult extends Finding {
  readonly against: string;
  readonly target: Target;
  readonly kept: boolean;
}

export interface RowResult {
  readonly name: string;
  readonly title: string;
  readonly seconds: number;
  /** Why there is nothing to compare; null where it was measured. */
  readonly not_measured: string | null;
  readonly results: readonly TargetResult[];
}

export interface BenchResults {
  readonly measured_at: string;
  readonly machine: Machine;
  readonly rows: readonly RowResult[];
}

const resultsFile = fileURLToPath(new URL('../results.json', import.meta.url));

/** Undefined where nobody has measured yet. */
export const readResults = (file: string = resultsFile): BenchResults | undefined => {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  return JSON.parse(text) as BenchResults;
};

const significant = (key: string, value: unknown): unknown =>
  typeof value === 'number' && key !== 'memory_mb' && !Number.isInteger(value)
    ? Number(value.toPrecision(4))
    : value;

export const writeResults = (results: BenchResults, file: string = resultsFile): void =>
  writeFileSync(file, `${JSON.stringify(results, significant, 2)}\n`);

/**
 * What was measured now beside what was measured before, in the order of `now`: each target keeps its newest finding, so that a run that
 * leaves out a slow peer does not lose what was found for it.
 */
export const mergeRows = (before: readonly RowResult[], now: readonly RowResult[]): RowResult[] =>
  now.map((row) => {
    const earlier = before.find(({ name }) => name === row.name);
    if (!earlier) return row;
    const isNew = ({ against }: TargetResult): boolean =>
      !row.results.some((result) => result.against === against);
    const results = [...row.results, ...earlier.results.filter(isNew)];
    return results.length > 0
      ? { ...row, not_measured: null, results }
      : { ...row, not_measured: earlier.not_measured };
  });
