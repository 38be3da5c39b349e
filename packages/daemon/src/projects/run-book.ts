import type { RunRecord } from '@coppice/projects';
import type { WorkOrder, WorkOutcome } from './work-order.ts';

/** What the calls to models of a run took, as the gateway measured it. */
export interface Metered {
  readonly micros: number;
  readonly tokens: number;
  readonly calls: number;
}

export interface Settled extends WorkOutcome {
  readonly endSnapshot: string | null;
  /** Of an evaluator. */
  readonly score: number | null;
}

/** Where runs of one kind are written down: those of projects with their trials, or those of production. */
export interface RunBook {
  /** Those that have not ended, oldest first, and those whose sandbox is still to be destroyed. */
  open(): RunRecord[];
  unswept(): RunRecord[];
  get(id: string): RunRecord | undefined;
  update(id: string, changes: Partial<RunRecord>): void;
  /** What it is to do; a text where it must not go on, and why. */
  orderOf(
    run: RunRecord,
  ): WorkOrder | { readonly exit: 'cancelled' | 'limit:cost' | 'limit:time'; readonly why: string };
  /** Books what the gateway measured since it was last asked: the calls of the agent, or those of a judge of its work. */
  meter(run: RunRecord, metered: Metered, source: 'gateway' | 'judge'): void;
  /** Whether what it left is to be kept. */
  keeps(run: RunRecord, outcome: WorkOutcome): boolean;
  /** Whether it passed, by more than its exit code. */
  evaluate(
    run: RunRecord,
    order: WorkOrder,
    outcome: WorkOutcome,
  ): Promise<WorkOutcome & { score: number | null }>;
  /** Writes down how it ended, with all that follows from it, in one transaction. */
  settle(run: RunRecord, settled: Settled): void;
}
