import type { AgentTypes, ExperimentRecord, ProjectStore } from '@coppice/projects';
import {
  CoppiceError,
  type completeExperimentSchema,
  type Experiment,
  type StartExperiment,
  type scoreTrialSchema,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { WorkServices } from './agent-work.ts';
import type { ExperimentRunner } from './experiment-runner.ts';
import type { ProjectFinder } from './project-finder.ts';
import { experimentView } from './views.ts';

export interface ExperimentServiceParts {
  readonly store: ProjectStore;
  readonly finder: ProjectFinder;
  readonly types: AgentTypes;
  readonly runner: ExperimentRunner;
  readonly services: Pick<WorkServices, 'snapshots' | 'sandboxes'>;
  readonly now: () => number;
  /** Looks at the trials now, instead of a little later. */
  readonly tendSoon: () => void;
}

/** The experiments of projects: begun, looked at, judged by a person, completed. The runner does their trials. */
export class ExperimentService {
  readonly #parts: ExperimentServiceParts;

  constructor(parts: ExperimentServiceParts) {
    this.#parts = parts;
  }

  async start(ref: string, input: StartExperiment): Promise<Experiment> {
    const { store, finder, types, runner, services, tendSoon, now } = this.#parts;
    const project = finder.active(ref);
    const runs = input.variants.length > 0 || input.template === 'bisect';
    const type = runs ? types.get(input.type ?? 'scripted') : undefined;
    if (type !== undefined) checkExperiment(input, (config) => type.check(config));
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
      if (runs) runner.plan(store.experiments.one({ id: rowId })!);
      store.projects.update({ id: project.id }, { activeMs: now(), forgotten: 0 });
      return rowId;
    });
    tendSoon();
    return storedExperiment(store, store.experiments.one({ id })!);
  }

  get(ref: string, id: number): Experiment {
    const { store, finder } = this.#parts;
    return storedExperiment(store, finder.experiment(finder.get(ref), id));
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
    return this.get(ref, id);
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
    return this.get(ref, id);
  }
}

/** With its trials, as they are written down. */
export const storedExperiment = (store: ProjectStore, experiment: ExperimentRecord): Experiment =>
  experimentView(experiment, store.trials.all({ experimentId: experiment.id }, 'ORDER BY n'));

function checkExperiment(
  input: StartExperiment,
  check: (config: StartExperiment['config']) => unknown,
): void {
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
