import {
  AgentType,
  baselineRate,
  type Config,
  guard,
  type LaneRecord,
  mayPromote,
  type ProductionAgentRecord,
  type ProductionRunRecord,
  type ProductionStore,
  type ProjectStore,
  type RunRecord,
} from '@coppice/projects';
import {
  type AgentRun,
  CoppiceError,
  type ProductionAgent,
  type Promotion,
  setBudgetSchema,
} from '@coppice/protocol';
import type { WorkServices } from './agent-work.ts';
import type { MayDie } from './may-die.ts';
import type { Notifier } from './notifier.ts';
import type { ProjectEvaluator } from './project-evaluator.ts';
import { freshId, type ProjectFinder } from './project-finder.ts';
import { at, productionView, runView } from './views.ts';
import { mostAttempts } from './work-order.ts';

export interface ProductionParts {
  readonly store: ProjectStore;
  readonly production: ProductionStore;
  readonly finder: ProjectFinder;
  readonly evaluator: ProjectEvaluator;
  readonly notifier: Notifier;
  readonly services: WorkServices;
  readonly now: () => number;
  readonly mayDie: MayDie;
  readonly freshRunId: () => string;
}

/** Runs in a stage that must end well before the next. */
const windows = { shadow: 1, canary: 3 } as const;
/** One of so many runs of a lane goes to a canary. */
const canaryEvery = 4;
/** The guard looks at so many of the last runs. */
const guardRuns = 50;

/** Where promoted agents work. A lane is a job to be done; the agent that does it changes. */
export class Production {
  readonly #parts: ProductionParts;

  constructor(parts: ProductionParts) {
    this.#parts = parts;
  }

  list(): ProductionAgent[] {
    const { production } = this.#parts;
    return production.agents
      .all({}, 'ORDER BY promoted_ms, id')
      .map((agent) => productionView(production, agent));
  }

  get(ref: string): ProductionAgentRecord {
    const { production } = this.#parts;
    const found = production.agents.one({ id: ref });
    if (found !== undefined) return found;
    const lane = production.lanes.one({ name: ref });
    const agent = lane?.live == null ? undefined : production.agents.one({ id: lane.live });
    if (agent !== undefined) return agent;
    throw new CoppiceError('not_found', `there is no agent ${ref} in production`, {
      hint: 'List them: coppice project production',
    });
  }

  /** One transaction in the database of production is the promotion; the mark in the project's follows, at the latest at the next start. */
  async promote(ref: string, digest: string, confirmedBy: string): Promise<Promotion> {
    const { store, production, finder, evaluator, notifier, now, mayDie } = this.#parts;
    const project = finder.get(ref);
    const done = production.promotions.one({ projectId: project.id });
    if (done !== undefined) {
      this.#mark(project.id, done.atMs);
      return this.#view(project.id, false);
    }
    finder.active(ref);
    const evaluation = evaluator.look(project);
    if (evaluation.digest !== digest)
      throw new CoppiceError('conflict', `the project ${project.id} is not as it was when it was evaluated`, {
        hint: `Evaluate it again and confirm what you read: coppice project eval ${project.id}`,
      });
    if (!mayPromote(evaluation.recommendation))
      throw new CoppiceError('wrong_state', `the project ${project.id} is ${evaluation.recommendation}`, {
        hint: `Only RECOMMEND and STRONGLY_RECOMMEND go to production: coppice project eval ${project.id}`,
      });
    const agents = evaluator.promotable(project);
    if (agents.length === 0)
      throw new CoppiceError('wrong_state', `no agent of ${project.id} has a positive return of its own`, {
        hint: 'Report revenue with the agent that earned it: coppice project report-metric … --agent ID',
      });
    const nowMs = now();
    const promoted = agents.map((agent): ProductionAgentRecord => {
      const type = AgentType.read(agent.typeFile, agent.type);
      const { token_budget: _budget, ...config } = agent.config;
      const last = store.runs.all(
        { agentId: agent.id, state: 'ended' },
        'AND end_snapshot IS NOT NULL ORDER BY ended_ms DESC LIMIT 1',
      )[0];
      const { runs, failed } = store.runCounts(project.id, agent.id);
      const scheduleS = type.scheduleS(agent.config);
      return {
        id: freshId(`${agent.type}_`, 4),
        lane: laneOf(agent.name),
        name: agent.name,
        type: agent.type,
        typeVersion: agent.typeVersion,
        typeFile: agent.typeFile,
        stage: 'shadow',
        status: 'active',
        config,
        tokenBudget: type.tokenBudget(agent.config, 'production'),
        scheduleS,
        nextRunMs: scheduleS === null ? null : nowMs,
        projectId: project.id,
        fromAgent: agent.id,
        snapshot: last?.endSnapshot ?? null,
        notes: store.notes
          .all({ projectId: project.id }, 'ORDER BY id')
          .filter(({ agentId }) => agentId === null || agentId === agent.id)
          .map(({ text }) => text),
        baseline: baselineRate(failed, runs),
        promotedMs: nowMs,
      };
    });
    for (const agent of promoted) await this.#setBudget(agent);
    production.transaction(() => {
      production.promotions.insert({ projectId: project.id, digest, atMs: nowMs, confirmedBy });
      for (const agent of promoted) {
        production.lanes.insert({ name: agent.lane }, true);
        const lane = production.lanes.one({ name: agent.lane })!;
        // Where nobody works yet there is nothing to run beside.
        production.agents.insert({ ...agent, stage: lane.live === null ? 'canary' : 'shadow' });
      }
    });
    mayDie('promotion.recorded');
    this.#mark(project.id, nowMs);
    mayDie('promotion.marked');
    notifier.tell('project.promoted', project.id, { agents: promoted.map(({ id }) => id) });
    return this.#view(project.id, true);
  }

  /** What a daemon that died after a promotion did not write down any more. */
  settle(): void {
    for (const { projectId, atMs } of this.#parts.production.promotions.all()) this.#mark(projectId, atMs);
  }

  /** A new configuration is a new agent in the same lane, which has to prove itself like any other. */
  async change(
    ref: string,
    change: { status?: ProductionAgentRecord['status'] | undefined; config?: Config | undefined },
  ): Promise<ProductionAgent> {
    const { production, now } = this.#parts;
    const agent = this.get(ref);
    this.#assertNotRolledBack(agent);
    if (change.status !== undefined) production.agents.update({ id: agent.id }, { status: change.status });
    if (change.config === undefined) return productionView(production, this.get(agent.id));
    const type = AgentType.read(agent.typeFile, agent.type);
    const config = type.check(change.config);
    const nowMs = now();
    const { runs, failed } = production.runCounts(agent.id);
    const successor: ProductionAgentRecord = {
      ...agent,
      id: freshId(`${agent.type}_`, 4),
      stage: production.lanes.one({ name: agent.lane })?.live == null ? 'canary' : 'shadow',
      status: 'active',
      config,
      fromAgent: freshId(`${agent.id}@`, 4),
      baseline: runs === 0 ? agent.baseline : baselineRate(failed, runs),
      promotedMs: nowMs,
    };
    await this.#setBudget(successor);
    production.agents.insert(successor);
    return productionView(production, successor);
  }

  /** Runs the lane of that agent once: who does the work, and who runs beside it. */
  runLane(ref: string): AgentRun[] {
    const agent = this.get(ref);
    this.#assertNotRolledBack(agent);
    const runs = this.#turn(agent.lane);
    if (runs.length === 0)
      throw new CoppiceError('wrong_state', `nobody works in the lane ${agent.lane}`, {
        hint: 'Its agents are paused, killed or rolled back: coppice project production',
      });
    return runs.map(runView);
  }

  /** Begins what is due by schedule. */
  tend(): void {
    const { production, now } = this.#parts;
    const nowMs = now();
    for (const lane of production.lanes.all()) {
      const worker = this.#worker(lane);
      if (worker?.scheduleS == null || worker.nextRunMs === null || worker.nextRunMs > nowMs) continue;
      production.agents.update({ id: worker.id }, { nextRunMs: nowMs + worker.scheduleS * 1000 });
      this.#turn(lane.name);
    }
  }

  /** After a run: on to the next stage, or out. In the transaction that ends the run. */
  afterRun(agentId: string): void {
    const { production } = this.#parts;
    const agent = production.agents.one({ id: agentId });
    if (agent === undefined || agent.stage === 'rolled-back') return;
    const last = production.runs
      .all({ agentId, state: 'ended' }, 'ORDER BY ended_ms DESC, id DESC')
      .filter(({ exit }) => exit !== 'infra' && exit !== 'cancelled')
      .slice(0, guardRuns);
    const failed = last.filter(({ exit }) => exit !== 'ok').length;
    const verdict = guard(failed, last.length, agent.baseline);
    if (verdict.isWorse) {
      this.#rollBack(agent, `it fails more often than before: ${verdict.said}`, 'guard');
      return;
    }
    if (agent.stage === 'live') return;
    const { runs, failed: bad } = production.runCounts(agentId, agent.stage);
    if (runs - bad < windows[agent.stage]) return;
    if (agent.stage === 'shadow') production.agents.update({ id: agentId }, { stage: 'canary' });
    else this.#makeLive(agent);
  }

  rollBack(ref: string, reason: string): ProductionAgent {
    const { production, mayDie } = this.#parts;
    const agent = this.get(ref);
    this.#assertNotRolledBack(agent);
    production.transaction(() => this.#rollBack(agent, reason, 'hand'));
    mayDie('rollback.recorded');
    return productionView(production, this.get(agent.id));
  }

  /** The pointer of the lane goes back, and stays: what was rolled back is never tried again by itself. */
  #rollBack(agent: ProductionAgentRecord, reason: string, by: 'guard' | 'hand'): void {
    const { production, notifier, now } = this.#parts;
    const lane = production.lanes.one({ name: agent.lane })!;
    const isLive = lane.live === agent.id;
    const before = lane.previous === null ? undefined : production.agents.one({ id: lane.previous });
    const replacedBy = !isLive
      ? lane.live
      : before !== undefined && before.stage !== 'rolled-back'
        ? before.id
        : null;
    const last = production.runs.all(
      { agentId: agent.id },
      'AND end_snapshot IS NOT NULL ORDER BY ended_ms DESC LIMIT 1',
    )[0];
    production.agents.update({ id: agent.id }, { stage: 'rolled-back', status: 'killed', nextRunMs: null });
    if (isLive)
      production.lanes.update(
        { name: lane.name, generation: lane.generation },
        { live: replacedBy, previous: null, generation: lane.generation + 1 },
      );
    production.incidents.insert({
      agentId: agent.id,
      atMs: now(),
      by,
      reason,
      snapshot: last?.endSnapshot ?? null,
      replacedBy,
    });
    notifier.tell('agent.rolled_back', agent.projectId, {
      agent: agent.id,
      lane: lane.name,
      reason,
      by,
      replaced_by: replacedBy,
    });
  }

  #makeLive(agent: ProductionAgentRecord): void {
    const { production, notifier } = this.#parts;
    const lane = production.lanes.one({ name: agent.lane })!;
    production.agents.update({ id: agent.id }, { stage: 'live' });
    production.lanes.update(
      { name: lane.name, generation: lane.generation },
      { live: agent.id, previous: lane.live, generation: lane.generation + 1 },
    );
    notifier.tell('agent.live', agent.projectId, { agent: agent.id, lane: lane.name, replaces: lane.live });
  }

  #turn(laneName: string): RunRecord[] {
    const { production } = this.#parts;
    return production.transaction(() => {
      const lane = production.lanes.one({ name: laneName })!;
      production.lanes.update({ name: laneName }, { turns: lane.turns + 1 });
      const agents = production.agents.all({ lane: laneName, status: 'active' }, 'ORDER BY promoted_ms, id');
      const live = agents.find(({ id }) => id === lane.live);
      const canary = agents.find(({ stage }) => stage === 'canary');
      const canaryWorks = canary !== undefined && (live === undefined || lane.turns % canaryEvery === 0);
      const worker = canaryWorks ? canary : live;
      return [
        ...(worker === undefined ? [] : [this.#begin(worker, canaryWorks ? 'canary' : 'live')]),
        ...agents.filter(({ stage }) => stage === 'shadow').map((agent) => this.#begin(agent, 'shadow')),
      ];
    });
  }

  /** One that the machine broke is run again, so often. */
  retry({ agentId, stage, attempt }: ProductionRunRecord): void {
    const agent = this.#parts.production.agents.one({ id: agentId });
    if (agent?.status === 'active' && attempt < mostAttempts) this.#begin(agent, stage, attempt + 1);
  }

  #begin(agent: ProductionAgentRecord, stage: 'shadow' | 'canary' | 'live', attempt = 1): RunRecord {
    const { production, now, freshRunId } = this.#parts;
    const id = freshRunId();
    production.runs.insert({
      id,
      projectId: agent.projectId,
      agentId: agent.id,
      state: 'starting',
      // It grew from this state, and every run of it does.
      fromSnapshot: agent.snapshot,
      startedMs: now(),
      deadlineMs: now(),
      stage,
      attempt,
    });
    return production.runs.one({ id })!;
  }

  /** Whose schedule is the lane's. */
  #worker(lane: LaneRecord): ProductionAgentRecord | undefined {
    const { production } = this.#parts;
    const agents = production.agents.all({ lane: lane.name, status: 'active' }, 'ORDER BY promoted_ms, id');
    return agents.find(({ id }) => id === lane.live) ?? agents.find(({ stage }) => stage !== 'rolled-back');
  }

  #mark(projectId: string, atMs: number): void {
    const { store } = this.#parts;
    const project = store.projects.one({ id: projectId });
    if (project?.status === 'active')
      store.projects.update({ id: projectId }, { status: 'promoted', promotedMs: atMs });
  }

  #view(projectId: string, fresh: boolean): Promotion {
    const { production } = this.#parts;
    const promotion = production.promotions.one({ projectId })!;
    return {
      project: projectId,
      promoted_at: at(promotion.atMs),
      digest: promotion.digest,
      agents: production.agents
        .all({ projectId }, 'ORDER BY promoted_ms, id')
        .filter(({ fromAgent }) => !fromAgent.includes('@'))
        .map((agent) => productionView(production, agent)),
      fresh,
    };
  }

  #assertNotRolledBack(agent: ProductionAgentRecord): void {
    if (agent.stage === 'rolled-back')
      throw new CoppiceError('wrong_state', `the agent ${agent.id} was rolled back`, {
        hint: 'It is not tried again. Try another version in a project, and promote that.',
      });
  }

  async #setBudget({ id, type, typeFile, tokenBudget }: ProductionAgentRecord): Promise<void> {
    if (!AgentType.read(typeFile, type).needsModel) return;
    await this.#parts.services.gateway.setBudget(
      setBudgetSchema.parse({ scope: 'agent', name: id, period: 'day', tokens: tokenBudget }),
    );
  }
}

/** The job that an agent of that name does. */
const laneOf = (name: string): string =>
  name
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-|-$/g, '')
    .slice(0, 60) || 'lane';
