import { CoppiceError, type createSnapshotSchema, type RunStep, type Snapshot } from '@coppice/protocol';
import type { z } from 'zod';
import type { RunStepRecord } from '../db/run-step-table.ts';
import type { RunRecord } from '../db/run-table.ts';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import type { Journal } from '../journal/journal.ts';
import type { RunLog } from './run-log.ts';

export interface StepsParts {
  readonly state: State;
  readonly journal: Journal;
  readonly log: RunLog;
  readonly logger: Log;
  readonly now: () => number;
  readonly snapshots: {
    create(
      ref: string,
      input: z.output<typeof createSnapshotSchema>,
      options: { readonly by: 'admin' | 'run' },
    ): Promise<Pick<Snapshot, 'id' | 'has_memory'>>;
    delete(ref: string): Promise<void>;
  };
  readonly assertKeepsMemory: (sandboxId: string) => Promise<void>;
}

/** How the run stood when a step was taken. */
export interface StepMark {
  readonly adapterState: unknown;
  readonly jobId: number | null;
  readonly cursor: number;
  readonly attempt: number;
}

/** So many of the newest stay all; of the older ones ever fewer. */
const keptWhole = 24;
/** An agent asks for steps by its tool calls: so many in one run. */
const mostAsked = 10_000;

/**
 * Every step is a snapshot. The older they are, the fewer are kept: of those beyond the newest, the ones whose number is divisible by 2 up
 * to twice as far back, by 4 up to four times, and so on. The first stays.
 */
export const isKept = (number: number, last: number): boolean => {
  const age = last - number;
  if (number === 1 || age < keptWhole) return true;
  return number % 2 ** Math.ceil(Math.log2((age + 1) / keptWhole)) === 0;
};

/** The steps of runs: taken, thinned out, and removed with their run. */
export class Steps {
  readonly #parts: StepsParts;

  constructor(parts: StepsParts) {
    this.#parts = parts;
  }

  async take(run: RunRecord, kind: RunStep['kind'], title: string): Promise<RunStepRecord> {
    const { state, log, journal, now, snapshots, assertKeepsMemory } = this.#parts;
    if (run.sandboxId === null)
      throw new CoppiceError(
        'wrong_state',
        `run ${run.name} has no sandbox yet, and so nothing to go back to`,
      );
    const isAsked = kind === 'tool' || kind === 'turn';
    if (isAsked && (run.lastStep >= mostAsked || log.isFull(run)))
      throw new CoppiceError('limit_reached', `run ${run.name} has as many steps on record as it may have`);
    const beganMs = now();
    const number = run.lastStep + 1;
    const name = `${run.id.slice(-8)}-step-${number}`;
    const mark: StepMark = {
      adapterState: run.adapterState,
      jobId: run.jobId,
      cursor: run.cursor,
      attempt: run.attempt,
    };
    // A daemon that died after it took this one took it a moment ago.
    const found = state.snapshots.byName(run.sandboxId, name);
    // Before the agent starts there is no memory to keep, but whether it could be is known then.
    if (run.spec.step_memory && kind === 'start') await assertKeepsMemory(run.sandboxId);
    const memory = run.spec.step_memory && kind !== 'start';
    const { id, hasMemory } =
      found === undefined
        ? await snapshots
            .create(
              run.sandboxId,
              {
                name,
                note: `step ${number} of run ${run.name}: ${title}`.slice(0, 4096),
                tags: ['run-step'],
                memory,
              },
              // What the agent asks for by its tool calls is held to what a sandbox may keep in snapshots.
              { by: isAsked ? 'run' : 'admin' },
            )
            .then((taken) => ({ id: taken.id, hasMemory: taken.has_memory }))
        : { id: found.id, hasMemory: found.memoryBytes !== null };
    journal.step('run.step-taken');
    const record = log.commit(run.id, ({ run: now_, emit, update }) => {
      const step = {
        runId: run.id,
        number,
        kind,
        title: title.slice(0, 200),
        seq: now_.lastSeq,
        turn: now_.turn,
        atMs: now(),
        snapshotId: id,
        hasMemory,
        mark,
      };
      state.runSteps.insert(step);
      update({ lastStep: number, recordBytes: now_.recordBytes + JSON.stringify(mark).length });
      emit('run.step', 'daemon', {
        step: number,
        kind,
        title: step.title,
        snapshot_id: id,
        has_memory: hasMemory,
        took_ms: now() - beganMs,
      });
      return step;
    });
    await this.#thin(run.id, number);
    return record;
  }

  /** One that can be gone back to. */
  get(run: RunRecord, number: number | undefined): RunStepRecord & { readonly snapshotId: string } {
    const steps = this.#parts.state.runSteps.of(run.id);
    const kept = steps.filter(
      (step): step is RunStepRecord & { snapshotId: string } => step.snapshotId !== null,
    );
    const found = number === undefined ? kept.at(-1) : kept.find((step) => step.number === number);
    if (found !== undefined) return found;
    const before = kept.filter((step) => number !== undefined && step.number < number).at(-1);
    const why = steps.some((step) => step.number === number) ? 'was thinned out' : 'is not there';
    throw new CoppiceError(
      'not_found',
      number === undefined ? `run ${run.name} has no steps` : `step ${number} of run ${run.name} ${why}`,
      {
        hint:
          before === undefined
            ? `List its steps: \`coppice agent show ${run.name}\`.`
            : `The one before that is kept is ${before.number}.`,
      },
    );
  }

  async #thin(runId: string, last: number): Promise<void> {
    for (const step of this.#parts.state.runSteps.of(runId))
      if (step.snapshotId !== null && !isKept(step.number, last)) await this.#drop(step, step.snapshotId);
  }

  /** With the run: what something grew from stays. */
  async removeAll(runId: string): Promise<void> {
    for (const step of this.#parts.state.runSteps.of(runId).reverse())
      if (step.snapshotId !== null) await this.#drop(step, step.snapshotId);
  }

  async #drop(step: RunStepRecord, snapshotId: string): Promise<void> {
    const { state, snapshots, logger } = this.#parts;
    try {
      if (state.snapshots.byId(snapshotId) !== undefined) await snapshots.delete(snapshotId);
    } catch (error) {
      // Something grew from it, or uses it now: it stays.
      if (error instanceof CoppiceError && error.code === 'in_use') return;
      logger.warn(
        { err: error, run: step.runId, step: step.number },
        'the snapshot of a step could not be removed',
      );
      return;
    }
    state.runSteps.dropSnapshot(step.runId, step.number);
  }
}
