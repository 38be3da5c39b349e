import { rmSync } from 'node:fs';
import type { ProductionStore, ProjectRecord, ProjectStore } from '@coppice/projects';
import type { Project } from '@coppice/protocol';
import type { AgentWork, WorkServices } from './agent-work.ts';
import type { Notifier } from './notifier.ts';
import type { ProjectFinder } from './project-finder.ts';
import { projectView } from './views.ts';

export interface ProjectEndingParts {
  readonly store: ProjectStore;
  readonly production: ProductionStore;
  readonly finder: ProjectFinder;
  readonly services: Pick<WorkServices, 'snapshots' | 'gateway'>;
  readonly work: AgentWork;
  readonly notifier: Notifier;
  readonly workspaceOf: (projectId: string) => string;
  readonly now: () => number;
  /** Looks at the runs now, instead of a little later. */
  readonly tendSoon: () => void;
  readonly forgetSnapshots: (projectId: string) => Promise<void>;
  /** Once no run of that project has a sandbox any more. */
  readonly quiet: (projectId: string) => Promise<void>;
}

/** Of each agent, so many runs can be looked into. */
const runsKept = 20;

/** How projects end, and what goes with them or is pruned before. What went to production stays. */
export class ProjectEnding {
  readonly #parts: ProjectEndingParts;

  constructor(parts: ProjectEndingParts) {
    this.#parts = parts;
  }

  /** Ends it at once; with `remove` nothing of it stays but the ledger, and what went to production. */
  async kill(ref: string, remove: boolean, because: string | null = null): Promise<Project> {
    const { store, finder, notifier, tendSoon, quiet, workspaceOf, now } = this.#parts;
    const project = finder.get(ref);
    store.transaction(() => {
      if (project.status === 'active') {
        store.projects.update(
          { id: project.id },
          { status: 'killed', endedBecause: because, activeMs: now() },
        );
        if (because !== null) notifier.tell('project.ended', project.id, { because });
      }
      store.agents.update({ projectId: project.id }, { status: 'killed', nextRunMs: null });
      for (const { id } of store.experiments.all({ projectId: project.id, state: 'running' }))
        store.experiments.update({ id }, { state: 'stopped', completedMs: now() });
    });
    tendSoon();
    const last = projectView(store, store.projects.one({ id: project.id })!, workspaceOf(project.id));
    if (!remove) return last;
    await quiet(project.id);
    await this.#erase(project);
    return last;
  }

  /** Of each agent only the last state is kept, and the events of its last runs. */
  async prune(): Promise<void> {
    const { store, work } = this.#parts;
    const kept = this.#keptByProduction();
    await work.thin(runsKept);
    for (const { id: agentId } of store.agents.all()) {
      const old = store.runs
        .all(
          { agentId, state: 'ended' },
          'AND end_snapshot IS NOT NULL AND trial IS NULL ORDER BY ended_ms DESC',
        )
        .slice(1);
      for (const run of old) {
        if (!kept.has(run.endSnapshot)) await work.forget(run.endSnapshot!);
        store.runs.update({ id: run.id }, { endSnapshot: null });
      }
    }
  }

  async #erase(project: ProjectRecord): Promise<void> {
    const { store, services, work, workspaceOf, forgetSnapshots } = this.#parts;
    for (const { id } of store.runs.all({ projectId: project.id })) await work.erase(id);
    const kept = this.#keptByProduction();
    // Newest first: an older one may be the parent of a newer one.
    for (const { id } of (await services.snapshots.list({ project: project.id })).reverse())
      if (!kept.has(id)) await work.forget(id);
    for (const { scope, name, period } of await services.gateway.listBudgets({ kind: 'admin' }))
      if (
        (scope === 'project' && name === project.id) ||
        (scope === 'agent' && name.startsWith(`sandbox_${project.id}_`))
      )
        await services.gateway.removeBudget({ scope, name, period });
    rmSync(workspaceOf(project.id), { recursive: true, force: true });
    await forgetSnapshots(project.id);
    store.forget(project.id);
  }

  /** Snapshots that agents of production grow from, and those for a post-mortem. */
  #keptByProduction(): Set<string | null> {
    const { agents, runs, incidents } = this.#parts.production;
    return new Set([
      ...agents.all().map(({ snapshot }) => snapshot),
      ...incidents.all().map(({ snapshot }) => snapshot),
      ...runs.all({}, 'WHERE end_snapshot IS NOT NULL').map(({ endSnapshot }) => endSnapshot),
    ]);
  }
}
