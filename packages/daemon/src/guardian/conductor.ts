import { setImmediate as turnOfOthers } from 'node:timers/promises';
import type { Conductor, RunEvent } from '@coppice/protocol';
import type { RunRecord } from '../db/run-table.ts';

const priorityLabel = 'coppice.priority';
const usualPriority = 5;
/** Of one run; a program inside can name as many as it likes. */
const mostFiles = 10_000;

const plainTask = (task: string): string => task.toLowerCase().replace(/\s+/g, ' ').trim();

/** Whose files are the same files: those of one repository, else of one project. */
const placeOf = ({ spec }: RunRecord): string | undefined =>
  spec.labels?.['coppice.repository'] ?? spec.repo?.url ?? spec.project;

const priorityOf = ({ spec }: RunRecord): number => {
  const given = Number(spec.labels?.[priorityLabel] ?? usualPriority);
  return Number.isInteger(given) && given >= 0 && given <= 9 ? given : usualPriority;
};

async function filesIn(pages: AsyncIterable<readonly RunEvent[]>): Promise<ReadonlySet<string>> {
  const paths = new Set<string>();
  for await (const page of pages)
    for (const event of page)
      if (event.type === 'agent.file_edited' && paths.size < mostFiles) paths.add(event.data.path);
  return paths;
}

/** What runs at work have to do with each other: which do the same, and which get in each other's way. */
export async function conduct(
  runs: readonly RunRecord[],
  pagesOf: (runId: string) => AsyncIterable<readonly RunEvent[]>,
): Promise<Conductor> {
  const files = new Map<string, ReadonlySet<string>>();
  for (const { id } of runs) files.set(id, await filesIn(pagesOf(id)));
  const duplicates: Conductor['duplicates'] = [];
  const conflicts: Conductor['conflicts'] = [];
  for (const [index, one] of runs.entries()) {
    await turnOfOthers();
    for (const other of runs.slice(index + 1)) {
      if (one.parentRunId === other.id || other.parentRunId === one.id) continue;
      const ids = [one.id, other.id].sort();
      const sameTicket = one.spec.ticket !== undefined && one.spec.ticket === other.spec.ticket;
      const samePlace = placeOf(one) !== undefined && placeOf(one) === placeOf(other);
      if (sameTicket && samePlace)
        duplicates.push({ runs: ids, why: `both work on ticket ${one.spec.ticket}` });
      else if (samePlace && plainTask(one.spec.task) === plainTask(other.spec.task))
        duplicates.push({ runs: ids, why: 'both have the same task' });
      const shared = samePlace
        ? [...files.get(one.id)!].filter((path) => files.get(other.id)!.has(path))
        : [];
      if (shared.length > 0) conflicts.push({ runs: ids, files: shared.sort().slice(0, 100) });
    }
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
