import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { AgentType, type ProjectStore, type RunRecord } from '@coppice/projects';
import type { ExperimentRunner } from './experiment-runner.ts';
import type { Metered, RunBook, Settled } from './run-book.ts';
import { StoredRuns } from './stored-runs.ts';
import type { TrialJudge } from './trial-judge.ts';
import { micros } from './views.ts';
import type { WorkOrder, WorkOutcome } from './work-order.ts';
import { mostAttempts } from './work-order.ts';

export interface ProjectBookParts {
  readonly store: ProjectStore;
  readonly experiments: ExperimentRunner;
  readonly judge: TrialJudge;
  readonly workspaceOf: (projectId: string) => string;
  readonly now: () => number;
  /** Nothing of such a project is to change for now. */
  readonly isHeld: (projectId: string) => boolean;
  readonly freshRunId: () => string;
}

/** The runs of projects: of agents that are tried out, and of trials. */
export class ProjectBook extends StoredRuns implements RunBook {
  readonly #parts: ProjectBookParts;

  constructor(parts: ProjectBookParts) {
    super(parts.store.runs);
    this.#parts = parts;
  }

  override open(): RunRecord[] {
    const { store, isHeld } = this.#parts;
    return super
      .open()
      .filter(
        ({ projectId }) => !isHeld(projectId) && store.projects.one({ id: projectId })?.restoring == null,
      );
  }

  orderOf(run: RunRecord): ReturnType<RunBook['orderOf']> {
    const { store, experiments, now } = this.#parts;
    const project = store.projects.one({ id: run.projectId });
    if (project?.status !== 'active') return { exit: 'cancelled', why: 'the project has ended' };
    if (project.capMicros !== null && store.sums(project.id).costMicros >= project.capMicros)
      return { exit: 'limit:cost', why: 'the cap of the project is used up' };
    if (project.endsMs !== null && now() > project.endsMs)
      return { exit: 'limit:time', why: 'the time of the project is over' };
    if (run.trial !== null) return experiments.orderOf(run);
    const agent = store.agents.one({ id: run.agentId });
    if (agent === undefined || agent.status === 'killed')
      return { exit: 'cancelled', why: 'the agent was killed' };
    const type = AgentType.read(agent.typeFile, agent.type);
    return {
      type,
      config: agent.config,
      ...(run.fromSnapshot === null ? {} : { from: run.fromSnapshot }),
      timeS: type.file.limits.time_s,
      projectId: run.projectId,
      agentId: run.agentId,
      runId: run.id,
    };
  }

  meter(run: RunRecord, metered: Metered, source: 'gateway' | 'judge'): void {
    const { store, now } = this.#parts;
    const before = store.metered(run.id, source);
    if (metered.micros === before.micros && metered.tokens === before.tokens) return;
    store.ledger.insert(
      {
        atMs: now(),
        projectId: run.projectId,
        agentId: run.agentId,
        runId: run.id,
        kind: 'cost',
        micros: metered.micros - before.micros,
        tokens: metered.tokens - before.tokens,
        source,
        evidence: `${metered.calls} calls`,
        key: `${source}:${run.id}:${metered.calls}:${metered.micros}:${metered.tokens}`,
      },
      true,
    );
  }

  keeps(run: RunRecord, outcome: WorkOutcome): boolean {
    return run.trial === null ? outcome.exit !== 'infra' : this.#parts.experiments.keeps(run);
  }

  async evaluate(
    run: RunRecord,
    order: WorkOrder,
    outcome: WorkOutcome,
  ): Promise<WorkOutcome & { score: number | null }> {
    const { judge, experiments } = this.#parts;
    const evaluator = run.trial === null ? order.type.file.evaluator : experiments.evaluatorOf(run);
    const judged = await judge.judge(evaluator, order, run.sandboxId!, outcome);
    if (judged.passed)
      return {
        ...outcome,
        summary: run.trial === null ? outcome.summary : judged.reason,
        score: judged.score,
      };
    const exit = outcome.exit === 'ok' ? 'failed' : outcome.exit;
    return { ...outcome, exit, summary: judged.reason || outcome.summary, score: judged.score };
  }

  settle(run: RunRecord, settled: Settled): void {
    const { store, experiments, now } = this.#parts;
    const nowMs = now();
    if (settled.output !== '') this.#keepOutput(run, settled);
    store.transaction(() => {
      if (store.runs.one({ id: run.id })?.state === 'ended') return;
      this.end(run, settled, nowMs);
      this.#bookReport(run, settled, nowMs);
      if (run.trial !== null) experiments.settleTrial(run, settled, nowMs);
      else if (settled.exit === 'infra' && run.attempt < mostAttempts) this.#again(run, nowMs);
      store.projects.update({ id: run.projectId }, { activeMs: nowMs, forgotten: 0 });
    });
  }

  /** What the machine broke is run again, from where it began. */
  #again({ projectId, agentId, fromSnapshot, attempt }: RunRecord, nowMs: number): void {
    const { store, freshRunId } = this.#parts;
    store.runs.insert({
      id: freshRunId(),
      projectId,
      agentId,
      state: 'starting',
      fromSnapshot,
      startedMs: nowMs,
      deadlineMs: nowMs,
      attempt: attempt + 1,
    });
  }

  /** What the agent says of itself, with itself as the source. What trials earn is no revenue: they are tries. */
  #bookReport(run: RunRecord, { report }: Settled, atMs: number): void {
    const { store } = this.#parts;
    const source = `agent:${run.agentId}`;
    const common = { atMs, projectId: run.projectId, agentId: run.agentId, runId: run.id, source };
    for (const [kind, dollars] of [
      ['cost', report.costUsd],
      ['revenue', run.trial === null ? report.revenueUsd : 0],
    ] as const)
      if (dollars > 0)
        store.ledger.insert(
          { ...common, kind, micros: micros(dollars), key: `report:${run.id}:${kind}` },
          true,
        );
    for (const [name, value] of Object.entries(report.metrics))
      store.metrics.insert({ ...common, name, value, key: `report:${run.id}:${name}` }, true);
    for (const text of report.notes)
      store.notes.insert({ atMs, projectId: run.projectId, agentId: run.agentId, text, source });
  }

  #keepOutput(run: RunRecord, { output }: Settled): void {
    const directory = this.#parts.workspaceOf(run.projectId);
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    writeFileSync(join(directory, `${run.id}.txt`), output, { mode: 0o600 });
  }
}
