import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import {
  type AgentRecord,
  type AgentTypes,
  type ExperimentRecord,
  meanGate,
  type ProductionStore,
  type ProjectRecord,
  type ProjectStore,
  shareGate,
} from '@coppice/projects';
import {
  type AgentRun,
  type AgentTypeInfo,
  CoppiceError,
  type completeExperimentSchema,
  type createProjectSchema,
  type deployAgentSchema,
  type Experiment,
  type LedgerEntry,
  type limitProjectSchema,
  type Project,
  type ProjectAgent,
  type ProjectComparison,
  type ProjectDetail,
  type ProjectMetrics,
  type ProjectSummary,
  type reportMetricSchema,
  type StartExperiment,
  type scoreTrialSchema,
  setBudgetSchema,
  type writeProjectNoteSchema,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { AgentWork, WorkServices } from './agent-work.ts';
import type { ExperimentRunner } from './experiment-runner.ts';
import type { Notifier } from './notifier.ts';
import { freshId, type ProjectFinder } from './project-finder.ts';
import { agentView, at, experimentView, metricsOf, micros, projectView, runView, usd } from './views.ts';

export interface ProjectServiceParts {
  readonly store: ProjectStore;
  readonly production: ProductionStore;
  readonly finder: ProjectFinder;
  readonly types: AgentTypes;
  readonly experiments: ExperimentRunner;
  readonly services: WorkServices;
  readonly work: AgentWork;
  readonly notifier: Notifier;
  readonly workspaceOf: (projectId: string) => string;
  readonly now: () => number;
  readonly freshRunId: () => string;
  /** Looks at the runs now, instead of a little later. */
  readonly tendSoon: () => void;
  readonly forgottenMs: number;
  readonly forgetSnapshots: (projectId: string) => Promise<void>;
  /** Once no run of that project has a sandbox any more. */
  readonly quiet: (projectId: string) => Promise<void>;
}

/** Of each agent, so many runs can be looked into. */
const runsKept = 20;

/** Projects with their agents, numbers and experiments. */
export class ProjectService {
  readonly #parts: ProjectServiceParts;

  constructor(parts: ProjectServiceParts) {
    this.#parts = parts;
  }

  create(input: z.output<typeof createProjectSchema>): Project {
    const { store, now } = this.#parts;
    const nowMs = now();
    const id = freshId('prj_', 4);
    mkdirSync(this.#parts.workspaceOf(id), { recursive: true, mode: 0o700 });
    store.projects.insert({
      id,
      name: input.name,
      description: input.description,
      status: 'active',
      createdMs: nowMs,
      capMicros: input.cap_usd == null ? null : micros(input.cap_usd),
      endsMs: input.time_limit_s == null ? null : nowMs + input.time_limit_s * 1000,
      activeMs: nowMs,
      forgotten: 0,
    });
    return this.#view(id);
  }

  list(): Project[] {
    const { store } = this.#parts;
    return store.projects.all({}, 'ORDER BY created_ms, id').map(({ id }) => this.#view(id));
  }

  summary(): ProjectSummary {
    const projects = this.list();
    const sum = (pick: (metrics: ProjectMetrics) => number): number =>
      projects.reduce((total, { metrics }) => total + pick(metrics), 0);
    const [cost, revenue] = [sum((each) => each.cost_usd), sum((each) => each.revenue_usd)];
    const count = (status: Project['status']): number =>
      projects.filter((each) => each.status === status).length;
    return {
      projects: projects.length,
      active: count('active'),
      promoted: count('promoted'),
      killed: count('killed'),
      agents: sum((each) => each.agents),
      cost_usd: cost,
      revenue_usd: revenue,
      profit_usd: revenue - cost,
      roi: cost === 0 ? 0 : ((revenue - cost) / cost) * 100,
      forgotten: projects.filter(({ forgotten }) => forgotten).map(({ id }) => id),
    };
  }

  get(ref: string): ProjectDetail {
    const { store, finder } = this.#parts;
    const project = finder.get(ref);
    return {
      ...this.#view(project.id),
      agents: store.agents
        .all({ projectId: project.id }, 'ORDER BY deployed_ms, id')
        .map((agent) => agentView(store, agent)),
      experiments: store.experiments.all({ projectId: project.id }, 'ORDER BY id').map((experiment) => {
        const { trials: _t, variants: _v, config: _c, results: _r, ...rest } = this.#experiment(experiment);
        return rest;
      }),
      reported: store.metrics
        .all({ projectId: project.id }, 'ORDER BY id DESC LIMIT 200')
        .map(({ atMs, name, value, agentId, runId, source }) => ({
          at: at(atMs),
          name,
          value,
          agent: agentId,
          run: runId,
          source,
        })),
      notes: store.notes
        .all({ projectId: project.id }, 'ORDER BY id DESC LIMIT 200')
        .map(({ atMs, agentId, text, source }) => ({ at: at(atMs), agent: agentId, text, source })),
    };
  }

  async limit(ref: string, input: z.output<typeof limitProjectSchema>): Promise<Project> {
    const { store, finder, now } = this.#parts;
    const project = finder.active(ref);
    const changes = {
      ...(input.cap_usd === undefined
        ? {}
        : { capMicros: input.cap_usd === null ? null : micros(input.cap_usd) }),
      ...(input.time_limit_s === undefined
        ? {}
        : { endsMs: input.time_limit_s === null ? null : now() + input.time_limit_s * 1000 }),
    };
    if (changes.capMicros !== undefined) await this.#capModels(project.id, changes.capMicros);
    store.projects.update({ id: project.id }, { ...changes, activeMs: now() });
    return this.#view(project.id);
  }

  async deploy(ref: string, input: z.output<typeof deployAgentSchema>): Promise<ProjectAgent> {
    const { store, finder, types, services, now, tendSoon } = this.#parts;
    const project = finder.active(ref);
    const type = types.get(input.type);
    const config = type.check(input.config);
    const id = freshId(`sandbox_${project.id}_${input.type}_`, 3);
    const tokenBudget = type.tokenBudget(config, 'project');
    if (type.needsModel) {
      await services.gateway.setBudget(
        setBudgetSchema.parse({ scope: 'agent', name: id, period: 'day', tokens: tokenBudget }),
      );
      if (project.capMicros !== null) await this.#capModels(project.id, project.capMicros);
    }
    const scheduleS = type.scheduleS(config);
    store.transaction(() => {
      // It may have ended meanwhile.
      finder.active(project.id);
      store.agents.insert({
        id,
        projectId: project.id,
        name: input.name ?? type.file.title,
        type: input.type,
        typeVersion: type.file.version,
        typeFile: type.file,
        config,
        status: 'active',
        tokenBudget,
        scheduleS,
        nextRunMs: scheduleS === null ? null : now() + scheduleS * 1000,
        deployedMs: now(),
      });
      if (input.run) this.#begin(project.id, id);
      store.projects.update({ id: project.id }, { activeMs: now(), forgotten: 0 });
    });
    tendSoon();
    return agentView(store, store.agents.one({ id })!);
  }

  changeAgent(ref: string, agentRef: string, status: AgentRecord['status']): ProjectAgent {
    const { store, finder, tendSoon, now } = this.#parts;
    const project = finder.active(ref);
    const agent = finder.agent(project, agentRef);
    if (agent.status === 'killed' && status !== 'killed')
      throw new CoppiceError('wrong_state', `the agent ${agent.id} was killed`, { hint: 'Deploy another.' });
    const nextRunMs = status === 'active' && agent.scheduleS !== null ? now() + agent.scheduleS * 1000 : null;
    store.agents.update({ id: agent.id }, { status, nextRunMs });
    tendSoon();
    return agentView(store, store.agents.one({ id: agent.id })!);
  }

  run(ref: string, agentRef: string): AgentRun {
    const { store, finder, tendSoon } = this.#parts;
    const project = finder.active(ref);
    const agent = finder.agent(project, agentRef);
    if (agent.status !== 'active')
      throw new CoppiceError('wrong_state', `the agent ${agent.id} is ${agent.status}`, {
        hint: `Resume it: coppice project agent ${project.id} ${agent.id} resume`,
      });
    const id = this.#begin(project.id, agent.id);
    tendSoon();
    return runView(store.runs.one({ id })!);
  }

  runs(ref: string): AgentRun[] {
    const { store, finder } = this.#parts;
    const project = finder.get(ref);
    return store.runs
      .all({ projectId: project.id }, 'ORDER BY started_ms DESC, id DESC LIMIT 200')
      .map(runView);
  }

  report(ref: string, input: z.output<typeof reportMetricSchema>): ProjectMetrics {
    const { store, finder, now } = this.#parts;
    const project = finder.get(ref);
    const agent = input.agent === undefined ? this.#onlyAgent(project) : finder.agent(project, input.agent);
    const key = `given:${project.id}:${input.key ?? freshId('', 8)}`;
    const common = {
      atMs: now(),
      projectId: project.id,
      agentId: agent?.id ?? null,
      source: input.source,
      key,
    };
    store.transaction(() => {
      if (input.name === 'revenue' || input.name === 'cost') {
        const kind = input.value >= 0 ? input.name : input.name === 'revenue' ? 'refund' : 'adjustment';
        const amount = micros(kind === 'refund' ? -input.value : input.value);
        store.ledger.insert({ ...common, kind, micros: amount, evidence: input.evidence ?? '' }, true);
      } else store.metrics.insert({ ...common, name: input.name, value: input.value }, true);
      store.projects.update({ id: project.id }, { activeMs: now(), forgotten: 0 });
    });
    return metricsOf(store, project.id);
  }

  note(ref: string, input: z.output<typeof writeProjectNoteSchema>): void {
    const { store, finder, now } = this.#parts;
    const project = finder.get(ref);
    const agentId = input.agent === undefined ? null : finder.agent(project, input.agent).id;
    store.notes.insert({ atMs: now(), projectId: project.id, agentId, text: input.text, source: 'hand' });
  }

  ledger(ref: string, { after, limit }: { after: number; limit: number }): LedgerEntry[] {
    const { store, finder } = this.#parts;
    const isGone =
      store.projects.one({ id: ref }) === undefined && store.ledger.one({ projectId: ref }) !== undefined;
    const projectId = isGone ? ref : finder.get(ref).id;
    return store.ledger
      .all({ projectId }, 'ORDER BY id')
      .filter(({ id }) => id > after)
      .slice(0, limit)
      .map((entry) => ({
        id: entry.id,
        at: at(entry.atMs),
        project: entry.projectId,
        agent: entry.agentId,
        run: entry.runId,
        kind: entry.kind,
        usd: usd(entry.micros),
        source: entry.source,
        evidence: entry.evidence,
      }));
  }

  /** Ends it at once; with `remove` nothing of it stays but the ledger, and what went to production. */
  async kill(ref: string, remove: boolean, because: string | null = null): Promise<Project> {
    const { store, finder, notifier, tendSoon, quiet, now } = this.#parts;
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
    const last = this.#view(project.id);
    if (!remove) return last;
    await quiet(project.id);
    await this.#erase(project);
    return last;
  }

  async startExperiment(ref: string, input: StartExperiment): Promise<Experiment> {
    const { store, finder, types, experiments, services, tendSoon, now } = this.#parts;
    const project = finder.active(ref);
    const runs = input.variants.length > 0 || input.template === 'bisect';
    const type = runs ? types.get(input.type ?? 'scripted') : undefined;
    if (type !== undefined) this.#checkExperiment(input, (config) => type.check(config));
    const snapshots = input.snapshots.map((snapshot) => snapshot);
    for (const snapshot of [...snapshots, ...(input.snapshot === undefined ? [] : [input.snapshot])])
      await services.snapshots.get(snapshot);
    if (input.merge_into !== undefined) services.sandboxes.peek(input.merge_into);
    const id = store.transaction(() => {
      const { rowId } = store.experiments.insert({
        projectId: project.id,
        name: input.name,
        hypothesis: input.hypothesis,
        template: input.template,
        state: runs ? 'running' : 'logged',
        config: runs ? { ...input.config, epochs: input.epochs } : input.config,
        results: {},
        type: type?.file.name ?? null,
        typeFile: type?.file ?? null,
        variants: input.variants,
        cases: input.cases.length === 0 && runs ? [{ id: 'only', input: '' }] : input.cases,
        snapshots,
        evaluator: input.evaluator,
        stop: input.stop,
        seed: input.seed,
        parallel: input.parallel,
        mergeInto: input.merge_into ?? null,
        // Each look of a bisection grows from a snapshot of its own.
        base: input.snapshot ?? snapshots[0] ?? null,
        startedMs: now(),
      });
      if (runs) experiments.plan(store.experiments.one({ id: rowId })!);
      store.projects.update({ id: project.id }, { activeMs: now(), forgotten: 0 });
      return rowId;
    });
    tendSoon();
    return this.#experiment(store.experiments.one({ id })!);
  }

  experiment(ref: string, id: number): Experiment {
    const { finder } = this.#parts;
    return this.#experiment(finder.experiment(finder.get(ref), id));
  }

  complete(ref: string, id: number, input: z.output<typeof completeExperimentSchema>): Experiment {
    const { store, finder, now, tendSoon } = this.#parts;
    const experiment = finder.experiment(finder.get(ref), id);
    if (experiment.state !== 'logged' && experiment.state !== 'running')
      throw new CoppiceError('wrong_state', `experiment ${id} is ${experiment.state}`, {
        hint: 'What is complete stays as it is. Log another.',
      });
    store.experiments.update(
      { id },
      {
        state: experiment.state === 'logged' ? 'done' : 'stopped',
        results: input.results,
        success: input.success ? 1 : 0,
        completedMs: now(),
      },
    );
    tendSoon();
    return this.experiment(ref, id);
  }

  score(ref: string, id: number, input: z.output<typeof scoreTrialSchema>): Experiment {
    const { store, finder, tendSoon } = this.#parts;
    const experiment = finder.experiment(finder.get(ref), id);
    const key = { experimentId: experiment.id, n: input.trial };
    const trial = store.trials.one(key);
    if (trial === undefined)
      throw new CoppiceError('not_found', `experiment ${id} has no trial ${input.trial}`, {
        hint: `See them: coppice project experiment ${ref} ${id}`,
      });
    if (trial.state !== 'waiting')
      throw new CoppiceError(
        'wrong_state',
        `trial ${input.trial} does not wait for a person: it is ${trial.state}`,
      );
    store.trials.update(key, { state: 'done', passed: input.passed ? 1 : 0, reason: input.reason });
    tendSoon();
    return this.experiment(ref, id);
  }

  compare(a: string, b: string): ProjectComparison {
    const { store, finder } = this.#parts;
    const [first, second] = [this.#view(finder.get(a).id), this.#view(finder.get(b).id)];
    const names = [
      'cost_usd',
      'revenue_usd',
      'profit_usd',
      'roi',
      'tokens',
      'agents',
      'runs',
      'failed_runs',
    ] as const;
    return {
      a: first,
      b: second,
      differences: names.map((metric) => ({
        metric,
        a: first.metrics[metric],
        b: second.metrics[metric],
        delta: second.metrics[metric] - first.metrics[metric],
      })),
      failures: shareGate(
        'passed',
        [first.metrics.runs - first.metrics.failed_runs, first.metrics.runs],
        [second.metrics.runs - second.metrics.failed_runs, second.metrics.runs],
      ),
      profit: meanGate('profit', store.profits(first.id), store.profits(second.id)),
    };
  }

  types(): AgentTypeInfo[] {
    return this.#parts.types.list().map((type) => ({
      name: type.file.name,
      version: type.file.version,
      title: type.file.title,
      description: type.file.description,
      adapter: type.file.adapter,
      needs_model: type.needsModel,
      parameters: type.parameters,
      token_budget: type.file.limits.tokens,
      schedule_s: type.file.schedule_s,
    }));
  }

  /** Begins runs that are due, ends projects whose time is over, and marks those that seem forgotten. */
  async tend(): Promise<void> {
    const { store, notifier, now, forgottenMs } = this.#parts;
    const nowMs = now();
    for (const agent of store.due(nowMs)) {
      store.agents.update({ id: agent.id }, { nextRunMs: nowMs + (agent.scheduleS ?? 3600) * 1000 });
      // One that still works is not begun twice.
      if (!store.runs.all({ agentId: agent.id }).some(({ state }) => state !== 'ended'))
        this.#begin(agent.projectId, agent.id);
    }
    for (const project of store.projects.all({ status: 'active' })) {
      if (project.endsMs !== null && nowMs > project.endsMs)
        await this.kill(project.id, false, 'its time was over');
      else if (project.forgotten === 0 && nowMs - project.activeMs > forgottenMs)
        store.transaction(() => {
          store.projects.update({ id: project.id }, { forgotten: 1 });
          notifier.tell('project.forgotten', project.id, { name: project.name });
        });
    }
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

  #begin(projectId: string, agentId: string): string {
    const { store, now, freshRunId } = this.#parts;
    const id = freshRunId();
    store.runs.insert({ id, projectId, agentId, state: 'starting', startedMs: now(), deadlineMs: now() });
    return id;
  }

  /** What a project earns with one agent is that agent's. */
  #onlyAgent(project: ProjectRecord): AgentRecord | undefined {
    const agents = this.#parts.store.agents.all({ projectId: project.id });
    return agents.length === 1 ? agents[0] : undefined;
  }

  #checkExperiment(input: StartExperiment, check: (config: StartExperiment['config']) => unknown): void {
    const bad = (message: string): CoppiceError =>
      new CoppiceError('invalid_argument', message, {
        hint: 'See docs/projects.md for what an experiment takes.',
      });
    const names = input.variants.map(({ name }) => name);
    const caseIds = input.cases.map(({ id }) => id);
    if (new Set(names).size < names.length) throw bad('two variants have the same name');
    if (new Set(caseIds).size < caseIds.length) throw bad('two cases have the same id');
    if (input.template === 'ab' && names.length < 2)
      throw bad('an A/B experiment compares at least two variants');
    if (input.template === 'bisect' && input.snapshots.length < 2)
      throw bad('a bisection needs at least two snapshots, from a good one to a bad one');
    if (input.merge_into !== undefined && (input.template !== 'best-of-n' || input.snapshot === undefined))
      throw bad('merge_into needs the template best-of-n and a snapshot of the sandbox to merge into');
    for (const variant of input.variants.length === 0 ? [{ config: {} }] : input.variants)
      check({ ...input.config, ...variant.config });
  }

  /** The gateway holds it too, so that no call goes beyond it. */
  async #capModels(projectId: string, capMicros: number | null): Promise<void> {
    const { gateway } = this.#parts.services;
    if (capMicros !== null) {
      await gateway.setBudget(
        setBudgetSchema.parse({ scope: 'project', name: projectId, micros: capMicros }),
      );
      return;
    }
    const there = (await gateway.listBudgets({ kind: 'admin' })).some(
      ({ scope, name }) => scope === 'project' && name === projectId,
    );
    if (there) await gateway.removeBudget({ scope: 'project', name: projectId, period: 'ever' });
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

  #experiment(experiment: ExperimentRecord): Experiment {
    const { store } = this.#parts;
    return experimentView(experiment, store.trials.all({ experimentId: experiment.id }, 'ORDER BY n'));
  }

  #view(id: string): Project {
    const { store, workspaceOf } = this.#parts;
    return projectView(store, store.projects.one({ id })!, workspaceOf(id));
  }
}

export const workspacesOf =
  (directory: string) =>
  (projectId: string): string =>
    join(directory, projectId);
