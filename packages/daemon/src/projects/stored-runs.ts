import type { RunRecord } from '@coppice/projects';
import type { Settled } from './run-book.ts';

/** The table of runs that both stores have. */
interface RunsTable {
  all(where: Partial<RunRecord>, rest?: string): RunRecord[];
  one(where: Partial<RunRecord>): RunRecord | undefined;
  update(where: Partial<RunRecord>, changes: Partial<RunRecord>): void;
}

/** What a book of runs does alike for projects and for production. */
export abstract class StoredRuns {
  readonly #runs: RunsTable;

  constructor(runs: RunsTable) {
    this.#runs = runs;
  }

  open(): RunRecord[] {
    return (['running', 'starting'] as const).flatMap((state) =>
      this.#runs.all({ state }, 'ORDER BY started_ms'),
    );
  }

  unswept(): RunRecord[] {
    return this.#runs.all({ state: 'ended' }, 'AND sandbox_id IS NOT NULL');
  }

  get(id: string): RunRecord | undefined {
    return this.#runs.one({ id });
  }

  update(id: string, changes: Partial<RunRecord>): void {
    this.#runs.update({ id }, changes);
  }

  protected end({ id, sandboxId }: RunRecord, settled: Settled, endedMs: number): void {
    const { exit, summary, endSnapshot } = settled;
    // The sandbox still has to go, also where its id was not written down yet.
    this.update(id, { state: 'ended', exit, summary, endSnapshot, endedMs, sandboxId: sandboxId ?? id });
  }
}
