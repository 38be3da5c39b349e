import type {
  AgentRecord,
  ExperimentRecord,
  ProductionAgentRecord,
  ProductionStore,
  ProjectRecord,
  ProjectStore,
  RunRecord,
  ScoredTrial,
  TrialRecord,
} from '@coppice/projects';
import { roiOf, summarise } from '@coppice/projects';
import type {
  AgentRun,
  Experiment,
  ProductionAgent,
  Project,
  ProjectAgent,
  ProjectMetrics,
  Trial,
} from '@coppice/protocol';

export const at = (ms: number): string => new Date(ms).toISOString();
const atOrNull = (ms: number | null): string | null => (ms === null ? null : at(ms));
export const usd = (micros: number): number => micros / 1e6;
export const micros = (dollars: number): number => Math.round(dollars * 1e6);

export function metricsOf(store: ProjectStore, projectId: string, agentId?: string): ProjectMetrics {
  const { costMicros, revenueMicros, tokens } = store.sums(projectId, agentId);
  const { runs, failed } = store.runCounts(projectId, agentId);
  const agents = store.agents.all(agentId === undefined ? { projectId } : { id: agentId });
  return {
    cost_usd: usd(costMicros),
    revenue_usd: usd(revenueMicros),
    profit_usd: usd(revenueMicros - costMicros),
    roi: roiOf(revenueMicros, costMicros),
    tokens,
    agents: agents.length,
    active_agents: agents.filter(({ status }) => status === 'active').length,
    runs,
    failed_runs: failed,
  };
}

export const projectView = (store: ProjectStore, project: ProjectRecord, workspace: string): Project => ({
  id: project.id,
  name: project.name,
  description: project.description,
  status: project.status,
  workspace,
  created_at: at(project.createdMs),
  promoted_at: atOrNull(project.promotedMs),
  cap_usd: project.capMicros === null ? null : usd(project.capMicros),
  ends_at: atOrNull(project.endsMs),
  ended_because: project.endedBecause,
  forgotten: project.forgotten === 1,
  metrics: metricsOf(store, project.id),
});

export const runView = (run: RunRecord): AgentRun => ({
  id: run.id,
  agent: run.agentId,
  // Until it has a sandbox nothing of it runs.
  state: run.state === 'running' && run.sandboxId === null ? 'starting' : run.state,
  exit: run.exit,
  summary: run.summary,
  sandbox: run.sandboxId,
  snapshot: run.endSnapshot,
  started_at: at(run.startedMs),
  ended_at: atOrNull(run.endedMs),
  attempt: run.attempt,
});

export function agentView(store: ProjectStore, agent: AgentRecord): ProjectAgent {
  const last = store.runs.all({ agentId: agent.id }, 'ORDER BY started_ms DESC, id DESC LIMIT 1')[0];
  return {
    id: agent.id,
    name: agent.name,
    type: agent.type,
    type_version: agent.typeVersion,
    status: agent.status,
    config: { ...agent.config },
    token_budget: agent.tokenBudget,
    schedule_s: agent.scheduleS,
    next_run_at: atOrNull(agent.nextRunMs),
    deployed_at: at(agent.deployedMs),
    metrics: metricsOf(store, agent.projectId, agent.id),
    last_run: last === undefined ? null : runView(last),
  };
}

const trialView = (trial: TrialRecord): Trial => ({
  n: trial.n,
  variant: trial.variant,
  case: trial.caseId,
  epoch: trial.epoch,
  state: trial.state,
  exit: trial.exit,
  passed: trial.passed === null ? null : trial.passed === 1,
  score: trial.score,
  cost_usd: usd(trial.costMicros),
  duration_ms: trial.durationMs,
  attempts: trial.attempts,
  reason: trial.reason,
  snapshot: trial.snapshot,
});

/** Trials that count: done, and not by the fault of the machine. */
export const scoredTrials = (trials: readonly TrialRecord[]): ScoredTrial[] =>
  trials
    .filter(({ state, passed }) => state === 'done' && passed !== null)
    .map((trial) => ({
      variant: trial.variant,
      caseId: trial.caseId,
      passed: trial.passed === 1,
      score: trial.score,
      costMicros: trial.costMicros,
      durationMs: trial.durationMs ?? 0,
    }));

export function experimentView(experiment: ExperimentRecord, trials: readonly TrialRecord[]): Experiment {
  const names = experiment.variants.map(({ name }) => name);
  const variants = summarise(names, scoredTrials(trials), experiment.stop);
  const gate = variants.at(-1)?.gate;
  const said = experiment.failure ?? sayExperiment(experiment, gate?.said);
  return {
    id: experiment.id,
    project: experiment.projectId,
    name: experiment.name,
    hypothesis: experiment.hypothesis,
    template: experiment.template,
    state: experiment.state,
    success: experiment.success === null ? null : experiment.success === 1,
    config: { ...experiment.config },
    results: { ...experiment.results },
    base: experiment.base,
    seed: experiment.seed,
    started_at: at(experiment.startedMs),
    completed_at: atOrNull(experiment.completedMs),
    failure: experiment.failure,
    planned: trials.length,
    trials: trials.map(trialView),
    variants,
    winner: experiment.winner,
    said,
  };
}

function sayExperiment({ state, winner, template }: ExperimentRecord, gate: string | undefined): string {
  if (state === 'logged') return 'done elsewhere; write its results down with complete';
  if (state === 'running') return 'running';
  if (template === 'bisect') return winner === null ? 'found nothing' : `first bad: ${winner}`;
  return winner === null ? (gate ?? 'no winner') : `${winner} wins${gate === undefined ? '' : `; ${gate}`}`;
}

export function productionView(store: ProductionStore, agent: ProductionAgentRecord): ProductionAgent {
  const { costMicros, revenueMicros } = store.sums(agent.id);
  const { runs, failed } = store.runCounts(agent.id);
  const incident = store.incidents.one({ agentId: agent.id });
  return {
    id: agent.id,
    lane: agent.lane,
    name: agent.name,
    type: agent.type,
    type_version: agent.typeVersion,
    stage: agent.stage,
    status: agent.status,
    config: { ...agent.config },
    token_budget: agent.tokenBudget,
    schedule_s: agent.scheduleS,
    next_run_at: atOrNull(agent.nextRunMs),
    project: agent.projectId,
    from_agent: agent.fromAgent,
    snapshot: agent.snapshot,
    notes: [...agent.notes],
    baseline_failures: agent.baseline,
    runs,
    failed_runs: failed,
    cost_usd: usd(costMicros),
    revenue_usd: usd(revenueMicros),
    promoted_at: at(agent.promotedMs),
    rollback:
      incident === undefined
        ? null
        : {
            at: at(incident.atMs),
            reason: incident.reason,
            by: incident.by,
            snapshot: incident.snapshot,
            replaced_by: incident.replacedBy,
          },
  };
}
