import type { Conductor, RunEvent } from '@coppice/protocol';
import type { RunRecord } from '../db/run-table.ts';

const priorityLabel = 'coppice.priority';
const usualPriority = 5;

const plainTask = (task: string): string => task.toLowerCase().replace(/\s+/g, ' ').trim();

/** Whose files are the same files: those of one repository, else of one project. */
const placeOf = ({ spec }: RunRecord): string | undefined =>
  spec.labels?.['coppice.repository'] ?? spec.repo?.url ?? spec.project;

const priorityOf = ({ spec }: RunRecord): number => {
  const given = Number(spec.labels?.[priorityLabel] ?? usualPriority);
  return Number.isInteger(given) && given >= 0 && given <= 9 ? given : usualPriority;
};

/** What runs at work have to do with each other: which do the same, and which get in each other's way. */
export function conduct(
  runs: readonly RunRecord[],
  editsOf: (runId: string) => readonly RunEvent[],
): Conductor {
  const files = new Map(
    runs.map((run) => [
      run.id,
      new Set(
        editsOf(run.id).flatMap((event) => (event.type === 'agent.file_edited' ? [event.data.path] : [])),
      ),
    ]),
  );
  const duplicates: Conductor['duplicates'] = [];
  const conflicts: Conductor['conflicts'] = [];
  for (const [index, one] of runs.entries())
    for (const other of runs.slice(index + 1)) {
      if (one.parentRunId === other.id || other.parentRunId === one.id) continue;
      const ids = [one.id, other.id].sort();
      const sameTicket = one.spec.ticket !== undefined && one.spec.ticket === other.spec.ticket;
      const samePlace = placeOf(one) !== undefined && placeOf(one) === placeOf(other);
      if (sameTicket && samePlace)
        duplicates.push({ runs: ids, why: `both work on ticket ${one.spec.ticket}` });
      else if (samePlace && plainTask(one.spec.task) === plainTask(other.spec.task))
        duplicates.push({ runs: ids, why: 'both have the same task' });
      const shared = [...files.get(one.id)!].filter((path) => files.get(other.id)!.has(path));
      if (samePlace && shared.length > 0) conflicts.push({ runs: ids, files: shared.sort().slice(0, 100) });
    }
  return {
    runs: runs
      .map((run) => ({
        run_id: run.id,
        name: run.name,
        priority: priorityOf(run),
        task: run.spec.task.slice(0, 200),
        files: files.get(run.id)!.size,
      }))
      .sort((a, b) => b.priority - a.priority || a.run_id.localeCompare(b.run_id)),
    duplicates,
    conflicts,
  };
}
