import { constants, existsSync, readdirSync } from 'node:fs';
import { cp, mkdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { ProjectSnapshotRecord, ProjectState, ProjectStore } from '@coppice/projects';
import { CoppiceError, type ProjectSnapshot } from '@coppice/protocol';
import type { AgentWork, WorkServices } from './agent-work.ts';
import type { MayDie } from './may-die.ts';
import { freshId, type ProjectFinder } from './project-finder.ts';
import { at } from './views.ts';

export interface ProjectSnapshotsParts {
  readonly store: ProjectStore;
  readonly finder: ProjectFinder;
  readonly work: AgentWork;
  readonly services: Pick<WorkServices, 'snapshots'>;
  readonly workspaceOf: (projectId: string) => string;
  /** Where copies of workspaces are kept. */
  readonly directory: string;
  readonly now: () => number;
  readonly mayDie: MayDie;
  readonly freshRunId: () => string;
  /** Nothing of the project changes by itself while this runs. */
  readonly still: <T>(projectId: string, work: () => Promise<T>) => Promise<T>;
}

const snapshotTag = 'project-snapshot';

/** Whole states of a project, to come back to. */
export class ProjectSnapshots {
  readonly #parts: ProjectSnapshotsParts;
  #settling: Promise<void> | undefined;

  constructor(parts: ProjectSnapshotsParts) {
    this.#parts = parts;
  }

  list(ref: string): ProjectSnapshot[] {
    const { store, finder } = this.#parts;
    return store.snapshots.all({ projectId: finder.get(ref).id }, 'ORDER BY id').map(view);
  }

  /** Rows, workspace and sandboxes of one instant: every sandbox of it stands still meanwhile. */
  async take(ref: string, name: string): Promise<ProjectSnapshot> {
    const { store, finder, work, services, still, now, mayDie } = this.#parts;
    const { id: projectId } = finder.get(ref);
    const assertNameFree = () => {
      if (store.snapshots.one({ projectId, name }) !== undefined)
        throw new CoppiceError('name_taken', `the project ${projectId} has a snapshot ${name} already`);
    };
    assertNameFree();
    await this.settle();
    return still(projectId, async () => {
      const running = store.runs
        .all({ projectId, state: 'running' })
        .flatMap(({ id, sandboxId }) =>
          sandboxId !== null && work.exists(sandboxId) ? [{ runId: id, sandboxId }] : [],
        );
      const workspace = freshId('', 8);
      const copy = join(this.#parts.directory, workspace);
      try {
        const { snapshotIds, result: rows } = await services.snapshots.createTogether(
          running.map(({ sandboxId }) => sandboxId),
          {
            name: `project-${now()}`,
            note: `of the project ${projectId}: ${name}`.slice(0, 4096),
            tags: [snapshotTag],
          },
          async () => {
            await copyTree(this.#parts.workspaceOf(projectId), copy);
            return this.#rows(projectId);
          },
        );
        mayDie('project-snapshot.taken');
        assertNameFree();
        const sandboxes = running.map(({ runId, sandboxId }) => ({
          runId,
          snapshotId: snapshotIds.get(sandboxId)!,
        }));
        const { rowId } = store.snapshots.insert({
          projectId,
          name,
          atMs: now(),
          body: { ...rows, sandboxes, workspace },
        });
        mayDie('project-snapshot.recorded');
        return view(store.snapshots.one({ id: rowId })!);
      } catch (error) {
        await rm(copy, { recursive: true, force: true });
        throw error;
      }
    });
  }

  /** Rows, agents, workspace and what ran come back. The ledger stays: what was spent is spent. */
  async restore(ref: string, snapshotId: number): Promise<void> {
    const { store, finder, mayDie } = this.#parts;
    await this.settle();
    const project = finder.get(ref);
    if (store.snapshots.one({ id: snapshotId, projectId: project.id }) === undefined)
      throw new CoppiceError('not_found', `the project ${project.id} has no snapshot ${snapshotId}`, {
        hint: `List them: coppice project snapshots ${project.id}`,
      });
    if (project.status === 'promoted')
      throw new CoppiceError('wrong_state', `the project ${project.id} was promoted and stays as it is`);
    if (project.restoring !== null)
      throw new CoppiceError(
        'wrong_state',
        `the project ${project.id} is being brought back to a snapshot already`,
      );
    store.projects.update({ id: project.id }, { restoring: snapshotId });
    mayDie('project-restore.recorded');
    await this.#finish(project.id, snapshotId);
  }

  /** What a daemon that died left half done is finished or removed, once. */
  async settle(): Promise<void> {
    this.#settling ??= this.#settle().catch((error: unknown) => {
      this.#settling = undefined;
      throw error;
    });
    await this.#settling;
  }

  async #settle(): Promise<void> {
    const { store, work, services, directory } = this.#parts;
    for (const { id, restoring } of store.projects.all())
      if (restoring !== null) await this.#finish(id, restoring);
    const known = store.snapshots.all();
    const used = new Set(known.flatMap(({ body }) => body.sandboxes.map(({ snapshotId }) => snapshotId)));
    for (const { id, tags } of await services.snapshots.list())
      if (tags.includes(snapshotTag) && !used.has(id)) await work.forget(id);
    const copies = new Set(known.map(({ body }) => body.workspace));
    for (const name of existsSync(directory) ? readdirSync(directory) : [])
      if (!copies.has(name)) await rm(join(directory, name), { recursive: true, force: true });
  }

  /** With its project. */
  async forget(projectId: string): Promise<void> {
    for (const { body } of this.#parts.store.snapshots.all({ projectId }))
      await rm(join(this.#parts.directory, body.workspace), { recursive: true, force: true });
  }

  /** Safe to repeat: until its last step the project is marked as being brought back. */
  async #finish(projectId: string, snapshotId: number): Promise<void> {
    const { store, work, still, mayDie, workspaceOf, directory } = this.#parts;
    const found = store.snapshots.one({ id: snapshotId, projectId });
    await still(projectId, async () => {
      if (found !== undefined) {
        for (const { id, state } of store.runs.all({ projectId }))
          if (state !== 'ended') await work.end(id, 'the project went back to a snapshot');
        this.#putRows(projectId, found.body);
        mayDie('project-restore.rows');
        const fresh = join(directory, `${found.body.workspace}.back`);
        await rm(fresh, { recursive: true, force: true });
        await copyTree(join(directory, found.body.workspace), fresh);
        await rm(workspaceOf(projectId), { recursive: true, force: true });
        await rename(fresh, workspaceOf(projectId));
      }
      store.projects.update({ id: projectId }, { restoring: null });
    });
  }

  #rows(projectId: string): Omit<ProjectState, 'sandboxes' | 'workspace'> {
    const { store } = this.#parts;
    const experiments = store.experiments.all({ projectId });
    return {
      project: store.projects.one({ id: projectId })!,
      agents: store.agents.all({ projectId }),
      metrics: store.metrics.all({ projectId }),
      notes: store.notes.all({ projectId }),
      experiments,
      trials: experiments.flatMap(({ id }) => store.trials.all({ experimentId: id })),
      runs: store.runs.all({ projectId }),
    };
  }

  #putRows(projectId: string, body: ProjectState): void {
    const { store, now, freshRunId } = this.#parts;
    const grown = new Map(body.sandboxes.map(({ runId, snapshotId: id }) => [runId, id]));
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
      const { id: _id, restoring: _restoring, ...project } = body.project;
      store.projects.update({ id: projectId }, { ...project, activeMs: now() });
      for (const agent of body.agents) store.agents.insert(agent);
      for (const metric of body.metrics) store.metrics.insert(metric);
      for (const note of body.notes) store.notes.insert(note);
      for (const experiment of body.experiments) store.experiments.insert(experiment);
      for (const trial of body.trials)
        store.trials.insert({ ...trial, runId: renewed.get(trial.runId ?? '') ?? trial.runId });
      for (const run of body.runs) {
        const id = renewed.get(run.id);
        // What ran goes on from the files that it had.
        const fromSnapshot = grown.get(run.id) ?? run.fromSnapshot;
        store.runs.insert(
          id === undefined
            ? run
            : { ...run, id, state: 'starting', sandboxId: null, fromSnapshot, attempt: 1 },
        );
      }
    });
  }
}

/** As it is, links included; only the content of files is shared where the filesystem can. */
async function copyTree(from: string, to: string): Promise<void> {
  await mkdir(to, { recursive: true, mode: 0o700 });
  if (!existsSync(from)) return;
  await cp(from, to, {
    recursive: true,
    force: true,
    verbatimSymlinks: true,
    preserveTimestamps: true,
    mode: constants.COPYFILE_FICLONE,
  });
}

const view = ({ id, projectId, name, atMs, body }: ProjectSnapshotRecord): ProjectSnapshot => ({
  id,
  project: projectId,
  name,
  at: at(atMs),
  agents: body.agents.length,
  sandboxes: body.sandboxes.length,
});
