import { randomBytes } from 'node:crypto';
import type { AgentRecord, ExperimentRecord, ProjectRecord, ProjectStore } from '@coppice/projects';
import { CoppiceError } from '@coppice/protocol';

/** Finds projects and what belongs to them by id or by name. */
export class ProjectFinder {
  readonly #store: ProjectStore;

  constructor(store: ProjectStore) {
    this.#store = store;
  }

  has(id: string): boolean {
    return this.#store.projects.one({ id }) !== undefined;
  }

  get(ref: string): ProjectRecord {
    const byId = this.#store.projects.one({ id: ref });
    if (byId !== undefined) return byId;
    const byName = this.#store.projects.all({ name: ref });
    if (byName.length === 1) return byName[0]!;
    if (byName.length > 1)
      throw new CoppiceError('ambiguous', `${byName.length} projects are called ${ref}`, {
        hint: `Use an id: ${byName.map(({ id }) => id).join(', ')}`,
      });
    const gone = this.#store.ledger.one({ projectId: ref }) !== undefined;
    throw new CoppiceError(
      'not_found',
      gone ? `the project ${ref} was deleted` : `there is no project ${ref}`,
      {
        hint: 'List them: coppice project ls',
      },
    );
  }

  /** One that is still tried out. */
  active(ref: string): ProjectRecord {
    const project = this.get(ref);
    if (project.restoring !== null)
      throw new CoppiceError(
        'wrong_state',
        `the project ${project.name} (${project.id}) is being brought back to a snapshot`,
      );
    if (project.status === 'active') return project;
    throw new CoppiceError(
      'wrong_state',
      `the project ${project.name} (${project.id}) is ${project.status}`,
      {
        hint: 'Nothing new is begun in it. Create another: coppice project create NAME',
      },
    );
  }

  agent(project: ProjectRecord, ref: string): AgentRecord {
    const agents = this.#store.agents.all({ projectId: project.id });
    const found = agents.find(({ id }) => id === ref) ?? agents.filter(({ name }) => name === ref);
    if (!Array.isArray(found)) return found;
    if (found.length === 1) return found[0]!;
    throw new CoppiceError(
      found.length === 0 ? 'not_found' : 'ambiguous',
      found.length === 0
        ? `the project ${project.name} has no agent ${ref}`
        : `${found.length} agents of ${project.name} are called ${ref}`,
      { hint: `Its agents: ${agents.map(({ id }) => id).join(', ') || 'none'}` },
    );
  }

  experiment(project: ProjectRecord, id: number): ExperimentRecord {
    const found = this.#store.experiments.one({ id, projectId: project.id });
    if (found !== undefined) return found;
    throw new CoppiceError('not_found', `the project ${project.name} has no experiment ${id}`, {
      hint: `See what it has: coppice project show ${project.id}`,
    });
  }
}

export const freshId = (prefix: string, bytes: number): string =>
  `${prefix}${randomBytes(bytes).toString('hex')}`;
