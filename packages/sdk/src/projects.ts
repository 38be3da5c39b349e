import type {
  AgentRun,
  AgentTypeInfo,
  Experiment,
  LedgerEntry,
  ProductionAgent,
  Project,
  ProjectAgent,
  ProjectComparison,
  ProjectDetail,
  ProjectEvaluation,
  ProjectMetrics,
  ProjectSnapshot,
  ProjectSummary,
  Promotion,
  RouteBody,
  RouteQuery,
  RouteResult,
} from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';

/** Projects: try agents, measure them, promote what is worth it. */
export class Projects {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  create({ signal, ...body }: RouteBody<'createProject'> & CallOptions): Promise<Project> {
    return this.#caller.call('createProject', { body, signal });
  }

  async list({ signal }: CallOptions = {}): Promise<Project[]> {
    return (await this.#caller.call('listProjects', { signal })).items;
  }

  summary({ signal }: CallOptions = {}): Promise<ProjectSummary> {
    return this.#caller.call('summariseProjects', { signal });
  }

  get(project: string, { signal }: CallOptions = {}): Promise<ProjectDetail> {
    return this.#caller.call('getProject', { params: { project }, signal });
  }

  compare(a: string, b: string, { signal }: CallOptions = {}): Promise<ProjectComparison> {
    return this.#caller.call('compareProjects', { query: { a, b }, signal });
  }

  limit(project: string, body: RouteBody<'limitProject'>, { signal }: CallOptions = {}): Promise<Project> {
    return this.#caller.call('limitProject', { params: { project }, body, signal });
  }

  /** With `delete` nothing of it stays but the ledger. */
  kill(project: string, options: { delete?: boolean } & CallOptions = {}): Promise<Project> {
    const query = { delete: options.delete ? 'true' : 'false' } as const;
    return this.#caller.call('killProject', { params: { project }, query, signal: options.signal });
  }

  deploy(
    project: string,
    { signal, ...body }: RouteBody<'deployAgent'> & CallOptions,
  ): Promise<ProjectAgent> {
    return this.#caller.call('deployAgent', { params: { project }, body, signal });
  }

  changeAgent(
    project: string,
    agent: string,
    body: RouteBody<'changeAgent'>,
    { signal }: CallOptions = {},
  ): Promise<ProjectAgent> {
    return this.#caller.call('changeAgent', { params: { project, agent }, body, signal });
  }

  run(project: string, agent: string, { signal }: CallOptions = {}): Promise<AgentRun> {
    return this.#caller.call('runAgent', { params: { project, agent }, signal });
  }

  async runs(project: string, { signal }: CallOptions = {}): Promise<AgentRun[]> {
    return (await this.#caller.call('listProjectRuns', { params: { project }, signal })).items;
  }

  report(
    project: string,
    { signal, ...body }: RouteBody<'reportMetric'> & CallOptions,
  ): Promise<ProjectMetrics> {
    return this.#caller.call('reportMetric', { params: { project }, body, signal });
  }

  async note(
    project: string,
    body: RouteBody<'writeProjectNote'>,
    { signal }: CallOptions = {},
  ): Promise<void> {
    await this.#caller.call('writeProjectNote', { params: { project }, body, signal });
  }

  async ledger(
    project: string,
    { signal, ...query }: RouteQuery<'listLedger'> & CallOptions = {},
  ): Promise<LedgerEntry[]> {
    return (await this.#caller.call('listLedger', { params: { project }, query, signal })).items;
  }

  evaluate(
    project: string,
    { signal, ...body }: RouteBody<'evaluateProject'> & CallOptions = {},
  ): Promise<ProjectEvaluation> {
    return this.#caller.call('evaluateProject', { params: { project }, body, signal });
  }

  /** `digest`: of the evaluation that was read. */
  promote(project: string, digest: string, { signal }: CallOptions = {}): Promise<Promotion> {
    return this.#caller.call('promoteProject', { params: { project }, body: { digest }, signal });
  }

  startExperiment(
    project: string,
    { signal, ...body }: RouteBody<'startExperiment'> & CallOptions,
  ): Promise<Experiment> {
    return this.#caller.call('startExperiment', { params: { project }, body, signal });
  }

  experiment(project: string, experiment: number, { signal }: CallOptions = {}): Promise<Experiment> {
    return this.#caller.call('getExperiment', { params: { project, experiment }, signal });
  }

  completeExperiment(
    project: string,
    experiment: number,
    body: RouteBody<'completeExperiment'>,
    { signal }: CallOptions = {},
  ): Promise<Experiment> {
    return this.#caller.call('completeExperiment', { params: { project, experiment }, body, signal });
  }

  score(
    project: string,
    experiment: number,
    body: RouteBody<'scoreTrial'>,
    { signal }: CallOptions = {},
  ): Promise<Experiment> {
    return this.#caller.call('scoreTrial', { params: { project, experiment }, body, signal });
  }

  snapshot(project: string, name: string, { signal }: CallOptions = {}): Promise<ProjectSnapshot> {
    return this.#caller.call('takeProjectSnapshot', { params: { project }, body: { name }, signal });
  }

  async snapshots(project: string, { signal }: CallOptions = {}): Promise<ProjectSnapshot[]> {
    return (await this.#caller.call('listProjectSnapshots', { params: { project }, signal })).items;
  }

  restore(project: string, snapshot: number, { signal }: CallOptions = {}): Promise<ProjectDetail> {
    return this.#caller.call('restoreProjectSnapshot', { params: { project, snapshot }, signal });
  }

  async types({ signal }: CallOptions = {}): Promise<AgentTypeInfo[]> {
    return (await this.#caller.call('listAgentTypes', { signal })).items;
  }
}

/** Agents that were promoted. */
export class Production {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  async list({ signal }: CallOptions = {}): Promise<ProductionAgent[]> {
    return (await this.#caller.call('listProduction', { signal })).items;
  }

  change(
    agent: string,
    body: RouteBody<'changeProductionAgent'>,
    { signal }: CallOptions = {},
  ): Promise<ProductionAgent> {
    return this.#caller.call('changeProductionAgent', { params: { agent }, body, signal });
  }

  /** Runs the lane of that agent once, now. */
  async run(agent: string, { signal }: CallOptions = {}): Promise<AgentRun[]> {
    return (await this.#caller.call('runProductionAgent', { params: { agent }, signal })).items;
  }

  rollBack(agent: string, reason?: string, { signal }: CallOptions = {}): Promise<ProductionAgent> {
    const body = reason === undefined ? {} : { reason };
    return this.#caller.call('rollBack', { params: { agent }, body, signal });
  }

  async newsTargets({ signal }: CallOptions = {}): Promise<RouteResult<'listNewsTargets'>['items']> {
    return (await this.#caller.call('listNewsTargets', { signal })).items;
  }

  /** The secret is shown once. */
  addNewsTarget({
    signal,
    ...body
  }: RouteBody<'addNewsTarget'> & CallOptions): Promise<RouteResult<'addNewsTarget'>> {
    return this.#caller.call('addNewsTarget', { body, signal });
  }

  async removeNewsTarget(url: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('removeNewsTarget', { query: { url }, signal });
  }
}
