import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ProjectSnapshotRecord, ProjectState, ProjectStore } from '@coppice/projects';
import { CoppiceError, type ProjectSnapshot } from '@coppice/protocol';
import type { AgentWork } from './agent-work.ts';
import type { ProjectFinder } from './project-finder.ts';
import { at } from './views.ts';

export interface ProjectSnapshotsParts {
  readonly store: ProjectStore;
  readonly finder: ProjectFinder;
  readonly work: AgentWork;
  readonly workspaceOf: (projectId: string) => string;
  readonly now: () => number;
  readonly freshRunId: () => string;
  /** Nothing of the project changes by itself while this runs. */
  readonly still: <T>(projectId: string, work: () => Promise<T>) => Promise<T>;
}

const workspaceBytes = 64 * 1024 * 1024;

/** Whole states of a project, to come back to. */
export class ProjectSnapshots {
  readonly #parts: ProjectSnapshotsParts;

  constructor(parts: ProjectSnapshotsParts) {
    this.#parts = parts;
  }

  list(ref: string): ProjectSnapshot[] {
    const { store, finder } = this.#parts;
    return store.snapshots.all({ projectId: finder.get(ref).id }, 'ORDER BY id').map(view);
  }

  async take(ref: string, name: string): Promise<ProjectSnapshot> {
    const { store, finder, work, still, now } = this.#parts;
    const { id: projectId } = finder.get(ref);
    if (store.snapshots.one({ projectId, name }) !== undefined)
      throw new CoppiceError('name_taken', `the project ${projectId} has a snapshot ${name} already`);
    return still(projectId, async () => {
      const running = store.runs
        .all({ projectId, state: 'running' })
        .filter(({ sandboxId }) => sandboxId !== null && work.exists(sandboxId));
      const sandboxes = await Promise.all(
        running.map(async ({ id: runId, sandboxId }) => ({
          runId,
          snapshotId: await work.keep(sandboxId!, `project-${now()}`),
        })),
      );
      const body: ProjectState = {
        project: store.projects.one({ id: projectId })!,
        agents: store.agents.all({ projectId }),
        metrics: store.metrics.all({ projectId }),
        notes: store.notes.all({ projectId }),
        experiments: store.experiments.all({ projectId }),
        trials: store.experiments
          .all({ projectId })
          .flatMap(({ id }) => store.trials.all({ experimentId: id })),
        runs: store.runs.all({ projectId }),
        sandboxes,
        files: this.#files(projectId),
      };
      const { rowId } = store.snapshots.insert({ projectId, name, atMs: now(), body });
      return view(store.snapshots.one({ id: rowId })!);
    });
  }

  /** Rows, agents, workspace and what ran come back. The ledger stays: what was spent is spent. */
  async restore(ref: string, snapshotId: number): Promise<void> {
    const { store, finder, work, still, now, freshRunId } = this.#parts;
    const { id: projectId } = finder.get(ref);
    const found = store.snapshots.one({ id: snapshotId, projectId });
    if (found === undefined)
      throw new CoppiceError('not_found', `the project ${projectId} has no snapshot ${snapshotId}`, {
        hint: `List them: coppice project snapshots ${projectId}`,
      });
    if (store.projects.one({ id: projectId })?.status === 'promoted')
      throw new CoppiceError('wrong_state', `the project ${projectId} was promoted and stays as it is`);
    await still(projectId, async () => {
      const { body } = found;
      const grown = new Map(body.sandboxes.map(({ runId, snapshotId: id }) => [runId, id]));
      for (const { id, state } of store.runs.all({ projectId }))
        if (state !== 'ended') await work.end(id, 'the project went back to a snapshot');
      // A run has its id once: what goes on is another.
      const renewed = new Map(
        body.runs.filter(({ state }) => state !== 'ended').map(({ id }) => [id, freshRunId()]),
      );
      store.transaction(() => {
        for (const { id } of store.experiments.all({ projectId })) store.experiments.delete({ id });
        store.runs.delete({ projectId });
        store.agents.delete({ projectId });
        store.metrics.delete({ projectId });
        store.notes.delete({ projectId });
        const { id: _id, ...project } = body.project;
        store.projects.update({ id: projectId }, { ...project, activeMs: now() });
        for (const agent of body.agents) store.agents.insert(agent);
        for (const metric of body.metrics) store.metrics.insert(metric);
        for (const note of body.notes) store.notes.insert(note);
        for (const experiment of body.experiments) store.experiments.insert(experiment);
        for (const trial of body.trials)
          store.trials.insert({ ...trial, runId: renewed.get(trial.runId ?? '') ?? trial.runId });
        for (const run of body.runs) {
          const isOpen = run.state !== 'ended';
          // What ran goes on from the files that it had.
          store.runs.insert(
            isOpen
              ? {
                  ...run,
                  id: renewed.get(run.id)!,
                  state: 'starting',
                  sandboxId: null,
                  fromSnapshot: grown.get(run.id) ?? run.fromSnapshot,
                  attempt: 1,
                }
              : { ...run, endSnapshot: run.endSnapshot },
          );
        }
      });
      this.#putFiles(projectId, body.files);
    });
  }

  #files(projectId: string): Record<string, string> {
    const directory = this.#parts.workspaceOf(projectId);
    const files: Record<string, string> = {};
    let bytes = 0;
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    for (const entry of readdirSync(directory, { withFileTypes: true })) {
      if (!entry.isFile()) continue;
      const content = readFileSync(join(directory, entry.name));
      bytes += content.length;
      if (bytes > workspaceBytes)
        throw new CoppiceError('too_large', `the workspace ${directory} is larger than 64 MiB`, {
          hint: 'Move files out of it first.',
        });
      files[entry.name] = content.toString('base64');
    }
    return files;
  }

  #putFiles(projectId: string, files: Readonly<Record<string, string>>): void {
    const directory = this.#parts.workspaceOf(projectId);
    rmSync(directory, { recursive: true, force: true });
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    for (const [name, content] of Object.entries(files))
      writeFileSync(join(directory, name), Buffer.from(content, 'base64'), { mode: 0o600 });
  }
}

const view = ({ id, projectId, name, atMs, body }: ProjectSnapshotRecord): ProjectSnapshot => ({
  id,
  project: projectId,
  name,
  at: at(atMs),
  agents: body.agents.length,
  sandboxes: body.sandboxes.length,
});
