import type { DoorServices } from '../door-services.ts';
import type { Handlers } from './call.ts';

type ProjectHandlers = Pick<
  Handlers,
  | 'listProjects'
  | 'summariseProjects'
  | 'compareProjects'
  | 'createProject'
  | 'getProject'
  | 'limitProject'
  | 'killProject'
  | 'deployAgent'
  | 'changeAgent'
  | 'runAgent'
  | 'listProjectRuns'
  | 'reportMetric'
  | 'writeProjectNote'
  | 'listLedger'
  | 'evaluateProject'
  | 'promoteProject'
  | 'startExperiment'
  | 'getExperiment'
  | 'completeExperiment'
  | 'scoreTrial'
  | 'takeProjectSnapshot'
  | 'listProjectSnapshots'
  | 'restoreProjectSnapshot'
  | 'listAgentTypes'
  | 'listProduction'
  | 'changeProductionAgent'
  | 'runProductionAgent'
  | 'rollBack'
  | 'listNewsTargets'
  | 'addNewsTarget'
  | 'removeNewsTarget'
>;

/** Of projects and of production. */
export function projectHandlers(services: DoorServices): ProjectHandlers {
  const { service, experiments, ending, evaluator, production, snapshots, notifier, finder } =
    services.projects;
  return {
    listProjects: async () => ({ items: await service.list() }),
    summariseProjects: async () => service.summary(),
    compareProjects: async ({ query }) => service.compare(query.a, query.b),
    createProject: async ({ body }) => service.create(body),
    getProject: async ({ params }) => service.get(params.project),
    limitProject: ({ params, body }) => service.limit(params.project, body),
    killProject: ({ params, query }) => ending.kill(params.project, query.delete === 'true'),
    deployAgent: ({ params, body }) => service.deploy(params.project, body),
    changeAgent: async ({ params, body }) => service.changeAgent(params.project, params.agent, body.status),
    runAgent: async ({ params }) => service.run(params.project, params.agent),
    listProjectRuns: async ({ params }) => ({ items: await service.runs(params.project) }),
    reportMetric: async ({ params, body }) => service.report(params.project, body),
    writeProjectNote: async ({ params, body }) => {
      await service.note(params.project, body);
      return {};
    },
    listLedger: async ({ params, query }) => ({ items: await service.ledger(params.project, query) }),
    evaluateProject: async ({ params, body }) => evaluator.evaluate(await finder.get(params.project), body),
    promoteProject: ({ params, body, principal }) =>
      production.promote(params.project, body.digest, principal?.tokenId ?? 'home'),
    startExperiment: ({ params, body }) => experiments.start(params.project, body),
    getExperiment: async ({ params }) => experiments.get(params.project, params.experiment),
    completeExperiment: async ({ params, body }) =>
      experiments.complete(params.project, params.experiment, body),
    scoreTrial: async ({ params, body }) => experiments.score(params.project, params.experiment, body),
    takeProjectSnapshot: ({ params, body }) => snapshots.take(params.project, body.name),
    listProjectSnapshots: async ({ params }) => ({ items: await snapshots.list(params.project) }),
    restoreProjectSnapshot: async ({ params }) => {
      await snapshots.restore(params.project, params.snapshot);
      return service.get(params.project);
    },
    listAgentTypes: async () => ({ items: await service.types() }),
    listProduction: async () => ({ items: await production.list() }),
    changeProductionAgent: ({ params, body }) => production.change(params.agent, body),
    runProductionAgent: async ({ params }) => ({ items: await production.runLane(params.agent) }),
    rollBack: async ({ params, body }) => production.rollBack(params.agent, body.reason),
    listNewsTargets: async () => ({ items: await notifier.list() }),
    addNewsTarget: async ({ body }) => notifier.add(body.url, body.secret),
    removeNewsTarget: async ({ query }) => {
      await notifier.remove(query.url);
      return {};
    },
  };
}
