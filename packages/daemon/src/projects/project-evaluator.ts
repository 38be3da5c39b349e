import { type AgentRecord, judge, type ProjectRecord, type ProjectStore } from '@coppice/projects';
import type { ProjectEvaluation } from '@coppice/protocol';
import type { Council } from './council.ts';
import { canonical, digestOf } from './promotion.ts';
import { agentView, experimentView, metricsOf } from './views.ts';

/** Says what a project is worth, and what of it may go to production. */
export class ProjectEvaluator {
  readonly #store: ProjectStore;
  readonly #council: Council;

  constructor(store: ProjectStore, council: Council) {
    this.#store = store;
    this.#council = council;
  }

  async evaluate(
    project: ProjectRecord,
    ask: { council: boolean; model?: string | undefined },
  ): Promise<ProjectEvaluation> {
    const evaluation = this.look(project);
    const council = ask.council ? await this.#council.ask(project, evaluation, ask.model) : null;
    return { ...evaluation, council };
  }

  /** Without the council: numbers alone, the same again as long as nothing changes. */
  look(project: ProjectRecord): ProjectEvaluation {
    const metrics = metricsOf(this.#store, project.id);
    const experiments = this.#verdicts(project);
    const agents = this.promotable(project);
    const evaluation = {
      project: project.id,
      metrics,
      ...judge(metrics),
      experiments,
      promotable: agents.map((agent) => ({
        id: agent.id,
        name: agent.name,
        roi: agentView(this.#store, agent).metrics.roi,
      })),
    };
    const configurations = agents.map(({ id, type, typeVersion, config }) => ({
      id,
      type,
      typeVersion,
      config,
    }));
    return { ...evaluation, council: null, digest: digestOf(evaluation, configurations) };
  }

  /** With a positive return, active or paused, and not what an experiment left open or decided against. */
  promotable(project: ProjectRecord): AgentRecord[] {
    const refused = this.#refusedConfigurations(project);
    return this.#store.agents
      .all({ projectId: project.id }, 'ORDER BY deployed_ms, id')
      .filter(
        (agent) =>
          agent.status !== 'killed' &&
          agentView(this.#store, agent).metrics.roi > 0 &&
          !refused.has(`${agent.type} ${canonical(agent.config)}`),
      );
  }

  #verdicts(project: ProjectRecord): ProjectEvaluation['experiments'] {
    return this.#store.experiments
      .all({ projectId: project.id, state: 'done' }, 'ORDER BY id')
      .flatMap((experiment) => {
        const trials = this.#store.trials.all({ experimentId: experiment.id }, 'ORDER BY n');
        return experimentView(experiment, trials).variants.flatMap(({ name, gate }) =>
          gate === null ? [] : [{ id: experiment.id, name: experiment.name, variant: name, gate }],
        );
      });
  }

  /** Configurations of variants that are not known to be better. The last experiment about one counts. */
  #refusedConfigurations(project: ProjectRecord): Set<string> {
    const refused = new Set<string>();
    for (const experiment of this.#store.experiments.all(
      { projectId: project.id, state: 'done' },
      'ORDER BY id',
    )) {
      if (experiment.template !== 'ab' || experiment.variants.length < 2) continue;
      const trials = this.#store.trials.all({ experimentId: experiment.id }, 'ORDER BY n');
      const { epochs: _epochs, ...shared } = experiment.config;
      for (const { name, gate } of experimentView(experiment, trials).variants) {
        const variant = experiment.variants.find((each) => each.name === name);
        const key = `${experiment.type} ${canonical({ ...shared, ...variant?.config })}`;
        const isBaseline = gate === null;
        if (isBaseline ? experiment.winner === null || experiment.winner === name : gate.verdict === 'better')
          refused.delete(key);
        else refused.add(key);
      }
    }
    return refused;
  }
}
