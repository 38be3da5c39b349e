import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import {
  type AgentRecord,
  type AgentTypes,
  meanGate,
  type ProjectRecord,
  type ProjectStore,
  shareGate,
} from '@coppice/projects';
import {
  type AgentRun,
  type AgentTypeInfo,
  CoppiceError,
  type createProjectSchema,
  type deployAgentSchema,
  type LedgerEntry,
  type limitProjectSchema,
  type Project,
  type ProjectAgent,
  type ProjectComparison,
  type ProjectDetail,
  type ProjectMetrics,
  type ProjectSummary,
  type reportMetricSchema,
  setBudgetSchema,
  type writeProjectNoteSchema,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { WorkServices } from './agent-work.ts';
import { storedExperiment } from './experiment-service.ts';
import type { Notifier } from './notifier.ts';
import type { ProjectEnding } from './project-ending.ts';
import { freshId, type ProjectFinder } from './project-finder.ts';
import { agentView, at, metricsOf, micros, projectView, runView, usd } from './views.ts';

export interface ProjectServiceParts {
  readonly store: ProjectStore;
  readonly finder: ProjectFinder;
  readonly types: AgentTypes;
  readonly ending: ProjectEnding;
  readonly services: WorkServices;
  readonly notifier: Notifier;
  readonly workspaceOf: (projectId: string) => string;
  readonly now: () => number;
  readonly freshRunId: () => string;
  /** Looks at the runs now, instead of a little later. */
  readonly tendSoon: () => void;
  readonly forgottenMs: number;
}

/** Projects with their agents and numbers. */
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
        const {
          trials: _t,
          variants: _v,
          config: _c,
          results: _r,
          ...rest
        } = storedExperiment(store, experiment);
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
    const { store, ending, notifier, now, forgottenMs } = this.#parts;
    const nowMs = now();
    for (const agent of store.due(nowMs)) {
      store.agents.update({ id: agent.id }, { nextRunMs: nowMs + (agent.scheduleS ?? 3600) * 1000 });
      // One that still works is not begun twice.
      if (!store.runs.all({ agentId: agent.id }).some(({ state }) => state !== 'ended'))
        this.#begin(agent.projectId, agent.id);
    }
    for (const project of store.projects.all({ status: 'active' })) {
      if (project.endsMs !== null && nowMs > project.endsMs)
        await ending.kill(project.id, false, 'its time was over');
      else if (project.forgotten === 0 && nowMs - project.activeMs > forgottenMs)
        store.transaction(() => {
          store.projects.update({ id: project.id }, { forgotten: 1 });
          notifier.tell('project.forgotten', project.id, { name: project.name });
        });
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

  #view(id: string): Project {
    const { store, workspaceOf } = this.#parts;
    return projectView(store, store.projects.one({ id })!, workspaceOf(id));
  }
}

export const workspacesOf =
  (directory: string) =>
  (projectId: string): string =>
    join(directory, projectId);
