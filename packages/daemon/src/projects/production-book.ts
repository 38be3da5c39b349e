import { AgentType, type ProductionStore, type RunRecord } from '@coppice/projects';
import type { Production } from './production.ts';
import type { Metered, RunBook, Settled } from './run-book.ts';
import { StoredRuns } from './stored-runs.ts';
import type { TrialJudge } from './trial-judge.ts';
import { micros } from './views.ts';
import type { WorkOrder, WorkOutcome } from './work-order.ts';

export interface ProductionBookParts {
  readonly store: ProductionStore;
  readonly production: Production;
  readonly judge: TrialJudge;
  readonly now: () => number;
}

/** The runs of production. */
export class ProductionBook extends StoredRuns implements RunBook {
  readonly #parts: ProductionBookParts;

  constructor(parts: ProductionBookParts) {
    super(parts.store.runs);
    this.#parts = parts;
  }

  orderOf(run: RunRecord): ReturnType<RunBook['orderOf']> {
    const agent = this.#parts.store.agents.one({ id: run.agentId });
    if (agent === undefined || agent.status === 'killed')
      return { exit: 'cancelled', why: 'the agent was taken out of production' };
    const type = AgentType.read(agent.typeFile, agent.type);
    return {
      type,
      config: agent.config,
      from: run.fromSnapshot ?? undefined,
      timeS: type.file.limits.time_s,
      projectId: run.projectId,
      agentId: run.agentId,
      runId: run.id,
      labels: { stage: this.#parts.store.runs.one({ id: run.id })?.stage ?? '' },
    };
  }

  meter(run: RunRecord, metered: Metered, source: 'gateway' | 'judge'): void {
    const { store, now } = this.#parts;
    const before = store.ledger
      .all({ runId: run.id, source })
      .reduce(
        (sum, { micros: spent, tokens }) => ({ micros: sum.micros + spent, tokens: sum.tokens + tokens }),
        {
          micros: 0,
          tokens: 0,
        },
      );
    if (metered.micros === before.micros && metered.tokens === before.tokens) return;
    store.ledger.insert(
      {
        atMs: now(),
        agentId: run.agentId,
        runId: run.id,
        kind: 'cost',
        micros: metered.micros - before.micros,
        tokens: metered.tokens - before.tokens,
        source,
        key: `${source}:${run.id}:${metered.calls}:${metered.micros}:${metered.tokens}`,
      },
      true,
    );
  }

  /** For the post-mortem. */
  keeps(_run: RunRecord, outcome: WorkOutcome): boolean {
    return outcome.exit !== 'ok' && outcome.exit !== 'infra';
  }

  async evaluate(
    run: RunRecord,
    order: WorkOrder,
    outcome: WorkOutcome,
  ): Promise<WorkOutcome & { score: number | null }> {
    const judged = await this.#parts.judge.judge(order.type.file.evaluator, order, run.sandboxId!, outcome);
    if (judged.passed || outcome.exit !== 'ok') return { ...outcome, score: judged.score };
    return { ...outcome, exit: 'failed', summary: judged.reason, score: judged.score };
  }

  settle(run: RunRecord, settled: Settled): void {
    const { store, production, now } = this.#parts;
    store.transaction(() => {
      const before = store.runs.one({ id: run.id });
      if (before === undefined || before.state === 'ended') return;
      const atMs = now();
      this.end(run, settled, atMs);
      const common = { atMs, agentId: run.agentId, runId: run.id, source: `agent:${run.agentId}` };
      const { costUsd, revenueUsd } = settled.report;
      if (costUsd > 0)
        store.ledger.insert(
          { ...common, kind: 'cost', micros: micros(costUsd), key: `report:${run.id}:cost` },
          true,
        );
      if (revenueUsd > 0)
        // Who only runs beside earns nothing.
        store.ledger.insert(
          {
            ...common,
            kind: before.stage === 'shadow' ? 'shadow-revenue' : 'revenue',
            micros: micros(revenueUsd),
            key: `report:${run.id}:revenue`,
          },
          true,
        );
      if (settled.exit === 'infra') production.retry(before);
      production.afterRun(run.agentId);
    });
  }
}
