import {
  AgentType,
  bestOf,
  type ExperimentRecord,
  nextBisectStep,
  type ProjectStore,
  planTrials,
  type RunRecord,
  summarise,
  type TrialRecord,
} from '@coppice/projects';
import { type Evaluator, mergeSchema } from '@coppice/protocol';
import type { Log } from '../host/log.ts';
import { type AgentWork, internal, type WorkServices } from './agent-work.ts';
import type { MayDie } from './may-die.ts';
import type { Notifier } from './notifier.ts';
import type { RunBook, Settled } from './run-book.ts';
import { scoredTrials } from './views.ts';

export interface ExperimentRunnerParts {
  readonly store: ProjectStore;
  readonly work: AgentWork;
  readonly services: WorkServices;
  readonly notifier: Notifier;
  readonly log: Log;
  readonly now: () => number;
  readonly mayDie: MayDie;
  readonly freshRunId: () => string;
}

/** A trial that the machine broke is run again so often; then the experiment fails, as no case may be left out. */
const mostAttempts = 5;
const bisectVariant = 'snapshot';

/** Works experiments off, trial by trial. What is done is in the database, so a kill neither repeats nor loses a trial. */
export class ExperimentRunner {
  readonly #parts: ExperimentRunnerParts;

  constructor(parts: ExperimentRunnerParts) {
    this.#parts = parts;
  }

  /** The trials of an experiment that begins; those of a bisection follow from each other. */
  plan(experiment: ExperimentRecord): void {
    if (experiment.template === 'bisect') return;
    const epochs = Number(experiment.config.epochs ?? 1);
    const trials = planTrials(
      experiment.variants.map(({ name }) => name),
      experiment.cases.map(({ id }) => id),
      { epochs, seed: experiment.seed },
    );
    for (const trial of trials)
      this.#parts.store.trials.insert({ experimentId: experiment.id, ...trial, state: 'pending' });
  }

  async tend(): Promise<void> {
    for (const experiment of this.#parts.store.experiments.all({ state: 'running' })) {
      try {
        await this.#advance(experiment);
      } catch (error) {
        this.#parts.log.warn({ err: error, experiment: experiment.id }, 'an experiment cannot go on');
        this.#finish(experiment, { state: 'failed', failure: String((error as Error).message ?? error) });
      }
    }
  }

  orderOf(run: RunRecord): ReturnType<RunBook['orderOf']> {
    const { store } = this.#parts;
    const experiment = store.experiments.one({ id: run.experimentId! });
    const trial = store.trials.one({ experimentId: run.experimentId!, n: run.trial! });
    if (experiment?.state !== 'running' || trial?.runId !== run.id)
      return { exit: 'cancelled', why: 'the experiment has ended' };
    const type = AgentType.read(experiment.typeFile, experiment.type ?? '');
    const variant = experiment.variants.find(({ name }) => name === trial.variant) ?? experiment.variants[0];
    const { epochs: _epochs, ...shared } = experiment.config;
    return {
      type,
      config: type.check({ ...shared, ...variant?.config }),
      prompt: variant?.prompt,
      from: run.fromSnapshot ?? undefined,
      image: variant?.image,
      tokenBudget: type.tokenBudget({ ...shared, ...variant?.config }, 'project'),
      case: experiment.cases.find(({ id }) => id === trial.caseId),
      timeS: variant?.time_limit_s ?? type.file.limits.time_s,
      labels: { experiment: String(experiment.id), variant: trial.variant, trial: String(trial.n) },
      projectId: run.projectId,
      agentId: run.agentId,
      runId: run.id,
    };
  }

  evaluatorOf(run: RunRecord): Evaluator {
    return this.#parts.store.experiments.one({ id: run.experimentId! })?.evaluator ?? { kind: 'exit-code' };
  }

  /** What may be merged, or is still to be looked at by a person. */
  keeps(run: RunRecord): boolean {
    const experiment = this.#parts.store.experiments.one({ id: run.experimentId! });
    return experiment?.mergeInto != null || experiment?.evaluator.kind === 'person';
  }

  /** In the transaction that ends the run. */
  settleTrial(run: RunRecord, settled: Settled, nowMs: number): void {
    const { store } = this.#parts;
    const key = { experimentId: run.experimentId!, n: run.trial! };
    const trial = store.trials.one(key);
    const experiment = store.experiments.one({ id: run.experimentId! });
    if (trial?.runId !== run.id || experiment === undefined) return;
    if (settled.exit === 'infra' || settled.exit === 'cancelled') {
      if (trial.attempts >= mostAttempts)
        this.#finish(experiment, {
          state: 'failed',
          failure: `the machine broke trial ${trial.n} ${mostAttempts} times: ${settled.summary}`,
        });
      store.trials.update(key, { state: 'pending', runId: null, reason: settled.summary });
      return;
    }
    const waits = experiment.evaluator.kind === 'person' && settled.exit === 'ok';
    store.trials.update(key, {
      state: waits ? 'waiting' : 'done',
      exit: settled.exit,
      // A trial that hits a limit did not do its work.
      passed: waits ? null : settled.exit === 'ok' ? 1 : 0,
      score: settled.score,
      costMicros: store.costOfRun(run.id),
      durationMs: nowMs - run.startedMs,
      reason: settled.summary,
      snapshot: settled.endSnapshot,
    });
  }

  async #advance(experiment: ExperimentRecord): Promise<void> {
    const { store } = this.#parts;
    const base = experiment.base ?? (await this.#makeBase(experiment));
    const trials = store.trials.all({ experimentId: experiment.id }, 'ORDER BY n');
    const open = trials.filter(({ state }) => state !== 'done');
    if (experiment.template === 'bisect' && open.length === 0) return this.#bisect(experiment, trials);
    if (experiment.template !== 'bisect' && (open.length === 0 || this.#isDecided(experiment, trials)))
      return this.#conclude(experiment, trials);
    const running = trials.filter(({ state }) => state === 'running').length;
    for (const trial of trials
      .filter(({ state }) => state === 'pending')
      .slice(0, Math.max(0, experiment.parallel - running)))
      this.#start(experiment, trial, base);
  }

  #start(experiment: ExperimentRecord, trial: TrialRecord, base: string): void {
    const { store, now } = this.#parts;
    const variant = experiment.variants.find(({ name }) => name === trial.variant);
    const fromSnapshot =
      experiment.template === 'bisect'
        ? experiment.snapshots[Number(trial.caseId)]!
        : // Another image is another beginning.
          (variant?.snapshot ?? (variant?.image === undefined ? base : null));
    const id = this.#parts.freshRunId();
    store.transaction(() => {
      store.runs.insert({
        id,
        projectId: experiment.projectId,
        agentId: `experiment_${experiment.id}_${trial.variant}`,
        experimentId: experiment.id,
        trial: trial.n,
        state: 'starting',
        fromSnapshot,
        startedMs: now(),
        deadlineMs: now(),
      });
      store.trials.update(
        { experimentId: experiment.id, n: trial.n },
        { state: 'running', runId: id, attempts: trial.attempts + 1 },
      );
    });
  }

  /** One snapshot that every trial grows from, where none was given. */
  async #makeBase(experiment: ExperimentRecord): Promise<string> {
    const { store, work, services, mayDie } = this.#parts;
    const name = `experiment-${experiment.id}-base`;
    // A daemon that died here left it, perhaps with the snapshot.
    const left = services.sandboxes.find(`${experiment.projectId}/${name}`);
    const id = left?.sandboxId ?? (await this.#createBase(experiment, name));
    const base = await work.keep(id, 'base');
    mayDie('experiment.base-made');
    store.experiments.update({ id: experiment.id }, { base, ownsBase: 1 });
    await work.removeSandbox(experiment.projectId, name);
    return base;
  }

  async #createBase(experiment: ExperimentRecord, name: string): Promise<string> {
    const { file } = AgentType.read(experiment.typeFile, experiment.type ?? '');
    const { id } = await this.#parts.services.sandboxes.create(
      {
        name,
        project: experiment.projectId,
        ...(file.snapshot === undefined ? { image: file.image } : { from: file.snapshot }),
        cpus: file.limits.cpus,
        memory_mb: file.limits.memory_mb,
        disk_mb: file.limits.disk_mb,
      },
      internal,
    );
    return id;
  }

  /** Every variant against the baseline, whenever it is looked at. */
  #isDecided(experiment: ExperimentRecord, trials: readonly TrialRecord[]): boolean {
    if (experiment.stop !== 'anytime' || experiment.template !== 'ab') return false;
    const names = experiment.variants.map(({ name }) => name);
    return summarise(names, scoredTrials(trials), 'anytime')
      .slice(1)
      .every(({ gate }) => gate !== null && gate.verdict !== 'inconclusive');
  }

  async #conclude(experiment: ExperimentRecord, trials: readonly TrialRecord[]): Promise<void> {
    const scored = scoredTrials(trials);
    const names = experiment.variants.map(({ name }) => name);
    if (experiment.template === 'regression') {
      const failed = scored.filter(({ passed }) => !passed);
      const results = {
        cases: scored.length,
        failed: failed.map(({ variant, caseId }) => `${variant}:${caseId}`),
      };
      return this.#finish(experiment, { state: 'done', success: failed.length === 0 ? 1 : 0, results });
    }
    if (experiment.template === 'best-of-n') {
      const winner = bestOf(names, scored) ?? null;
      await this.#mergeWinner(experiment, trials, winner);
      return this.#finish(experiment, { state: 'done', winner, success: winner === null ? 0 : 1 });
    }
    const summaries = summarise(names, scored, experiment.stop);
    const better = summaries
      .filter(({ gate }) => gate?.verdict === 'better')
      .sort((a, b) => b.rate - a.rate || a.cost_usd - b.cost_usd)[0];
    const allWorse =
      summaries.length > 1 && summaries.slice(1).every(({ gate }) => gate?.verdict === 'worse');
    const winner = better?.name ?? (allWorse ? names[0]! : null);
    this.#finish(experiment, { state: 'done', winner, success: better === undefined ? 0 : 1 });
  }

  async #mergeWinner(experiment: ExperimentRecord, trials: readonly TrialRecord[], winner: string | null) {
    const { services, work } = this.#parts;
    const best = trials.find(
      ({ variant, passed, snapshot }) => variant === winner && passed === 1 && snapshot !== null,
    );
    if (experiment.mergeInto !== null && best?.snapshot != null) {
      const name = `experiment-${experiment.id}-winner`;
      const project = experiment.projectId;
      await work.removeSandbox(project, name);
      const { id } = await services.sandboxes.create({ name, project, from: best.snapshot }, internal);
      await services.exec.run(id, {
        command: ['rm', '-rf', '/workspace/.agent', '/workspace/report.json'],
        max_output_bytes: 4096,
      });
      await services.compare.merge(experiment.mergeInto, mergeSchema.parse({ from: id }));
      await work.removeSandbox(project, name);
    }
  }

  async #bisect(experiment: ExperimentRecord, trials: readonly TrialRecord[]): Promise<void> {
    const known = new Map(trials.map(({ caseId, passed }) => [Number(caseId), passed === 1]));
    const step = nextBisectStep(experiment.snapshots.length, known);
    if (step.kind === 'test') {
      this.#parts.store.trials.insert({
        experimentId: experiment.id,
        n: trials.length + 1,
        variant: bisectVariant,
        caseId: String(step.index),
        epoch: 1,
        state: 'pending',
      });
      return;
    }
    const found = step.kind === 'found';
    this.#finish(experiment, {
      state: 'done',
      success: found ? 1 : 0,
      winner: found ? experiment.snapshots[step.index]! : null,
      results: found
        ? { first_bad: experiment.snapshots[step.index]!, last_good: experiment.snapshots[step.index - 1]! }
        : { nothing: step.said },
    });
  }

  #finish(experiment: ExperimentRecord, changes: Partial<ExperimentRecord>): void {
    const { store, notifier, now } = this.#parts;
    store.transaction(() => {
      const nowMs = now();
      store.experiments.update({ id: experiment.id }, { ...changes, completedMs: nowMs });
      store.projects.update({ id: experiment.projectId }, { activeMs: nowMs });
      notifier.tell('experiment.done', experiment.projectId, {
        experiment: experiment.id,
        state: changes.state ?? 'done',
        winner: changes.winner ?? null,
      });
    });
  }

  /** Of experiments that ended: what only they needed. */
  async sweep(): Promise<void> {
    const { store, work } = this.#parts;
    for (const experiment of store.experiments.all({ ownsBase: 1 })) {
      if (experiment.state === 'running' || experiment.base === null) continue;
      if (store.runs.all({ experimentId: experiment.id }).some(({ state }) => state !== 'ended')) continue;
      for (const trial of store.trials.all({ experimentId: experiment.id })) {
        if (trial.snapshot === null) continue;
        await work.forget(trial.snapshot);
        store.trials.update({ experimentId: experiment.id, n: trial.n }, { snapshot: null });
      }
      await work.forget(experiment.base);
      store.experiments.update({ id: experiment.id }, { ownsBase: 0, base: null });
    }
  }
}
