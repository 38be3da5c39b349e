import { BenchContext, type BenchContextOptions } from './bench-context.ts';
import type { RowResult } from './results.ts';
import { NotMeasured, type Row } from './row.ts';
import { isKept } from './target.ts';

/** A row that cannot be measured here says why and stops no other; one that breaks is an error. */
export const runRow = async (row: Row, options: BenchContextOptions): Promise<RowResult> => {
  const startedMs = performance.now();
  const about = { name: row.name, title: row.title };
  const seconds = (): number => (performance.now() - startedMs) / 1000;
  try {
    await using context = new BenchContext(options);
    const findings = await row.run(context);
    const results = Object.entries(row.targets).map(([against, target]) => {
      const finding = findings[against]!;
      return { against, target, kept: isKept(target, finding.value), ...finding };
    });
    return { ...about, seconds: seconds(), not_measured: null, results };
  } catch (error) {
    if (!(error instanceof NotMeasured)) throw error;
    return { ...about, seconds: seconds(), not_measured: error.message, results: [] };
  }
};
