import type { Diff, RunComparison, RunStep } from '@coppice/protocol';
import type { RunRecord } from '../db/run-table.ts';

/** The runs that one grew from, each with the step where the next began; itself first. */
const ancestry = (run: RunRecord, get: (id: string) => RunRecord | undefined): Map<string, number> => {
  const found = new Map([[run.id, run.lastStep]]);
  for (let at: RunRecord | undefined = run; at?.parentRunId != null; at = get(at.parentRunId))
    found.set(at.parentRunId, at.parentStep!);
  return found;
};

/** Two runs beside each other: where they parted, their steps by number, and what differs between the files that they have now. */
export async function compareRuns(
  a: RunRecord,
  b: RunRecord,
  parts: {
    readonly get: (id: string) => RunRecord | undefined;
    readonly steps: (runId: string) => RunStep[];
    readonly diff: ((from: string, to: string) => Promise<Diff>) | undefined;
  },
): Promise<RunComparison> {
  const [ofA, ofB] = [ancestry(a, parts.get), ancestry(b, parts.get)];
  const shared = [...ofA.keys()].find((id) => ofB.has(id));
  const common =
    shared === undefined ? undefined : { run_id: shared, step: Math.min(ofA.get(shared)!, ofB.get(shared)!) };
  const byNumber = (runId: string) => new Map(parts.steps(runId).map((step) => [step.number, step]));
  const [stepsA, stepsB] = [byNumber(a.id), byNumber(b.id)];
  const last = Math.max(a.lastStep, b.lastStep);
  const diff = parts.diff === undefined ? undefined : await parts.diff(a.sandboxId!, b.sandboxId!);
  return {
    a: a.id,
    b: b.id,
    common: common ?? null,
    steps: Array.from({ length: last }, (_, index) => ({
      number: index + 1,
      a: stepsA.get(index + 1) ?? null,
      b: stepsB.get(index + 1) ?? null,
    })),
    files: (diff?.changes ?? []).map(({ path, change }) => ({ path, change })),
    compared_files: diff !== undefined,
  };
}
