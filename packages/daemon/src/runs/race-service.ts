import {
  CoppiceError,
  type ExecResult,
  hasEnded,
  type IdSource,
  type Race,
  type RaceEntry,
  type RaceRun,
  type Run,
} from '@coppice/protocol';
import type { RaceRecord } from '../db/race-table.ts';
import type { RunRecord } from '../db/run-table.ts';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import type { Journal } from '../journal/journal.ts';
import type { RunLog } from './run-log.ts';

export interface RaceServiceParts {
  readonly state: State;
  readonly journal: Journal;
  readonly log: RunLog;
  readonly logger: Log;
  readonly ids: IdSource;
  readonly now: () => number;
  readonly runs: {
    find(ref: string): RunRecord;
    stepOf(ref: string, from: number | undefined): number;
    fork(
      ref: string,
      input: { from: number; message?: string | undefined },
      options: { readonly id: string },
    ): Promise<Run>;
  };
  readonly exec: (
    sandboxId: string,
    input: {
      readonly command: string;
      readonly cwd?: string;
      readonly timeout_ms: number;
      readonly max_output_bytes: number;
    },
    signal: AbortSignal,
  ) => Promise<ExecResult>;
  readonly merge: (into: string, from: string, signal: AbortSignal) => Promise<unknown>;
}

const judgeMs = 600_000;
const judgeBytes = 65_536;
const shownChars = 4000;

/**
 * Forks of one step of a run, judged when each has ended; what the best changed is merged into the sandbox of the run. Each part is
 * written down before the next begins, so another daemon goes on with it: forks are made once, and a judge that was cut short judges again.
 */
export class RaceService {
  readonly #parts: RaceServiceParts;
  readonly #ending = new AbortController();
  readonly #driven = new Set<Promise<void>>();

  constructor(parts: RaceServiceParts) {
    this.#parts = parts;
  }

  recover(): void {
    for (const { runId, number } of this.#parts.state.races.underWay()) this.#begin(runId, number);
  }

  async close(): Promise<void> {
    this.#ending.abort(new CoppiceError('cancelled', 'the daemon was stopped meanwhile'));
    await Promise.all(this.#driven);
  }

  async start(ref: string, spec: RaceRun): Promise<Race> {
    const { state, journal, runs, ids, now } = this.#parts;
    this.#ending.signal.throwIfAborted();
    const run = runs.find(ref);
    if (spec.messages.length > 1 && spec.messages.length !== spec.n)
      throw new CoppiceError(
        'invalid_argument',
        `give one message for all, or one for each of the ${spec.n} forks`,
      );
    const step = runs.stepOf(run.id, spec.from);
    const before = state.races.of(run.id);
    const going = before.find((race) => race.state === 'running');
    if (going !== undefined)
      throw new CoppiceError('wrong_state', `race ${going.number} of run ${run.name} is not over yet`);
    const record: RaceRecord = {
      runId: run.id,
      number: (before.at(-1)?.number ?? 0) + 1,
      state: 'running',
      reason: 'its forks work',
      spec,
      step,
      entries: Array.from({ length: spec.n }, () => ({
        run_id: ids.next('run'),
        outcome: null,
        exit_code: null,
        output: '',
        duration_ms: null,
      })),
      winner: null,
      merged: false,
      createdAtMs: now(),
      endedAtMs: null,
    };
    journal.commit(() => state.races.put(record));
    journal.step('race.recorded');
    this.#begin(run.id, record.number);
    return raceView(record);
  }

  async list(ref: string): Promise<Race[]> {
    return this.#parts.state.races.of(this.#parts.runs.find(ref).id).map(raceView);
  }

  async get(ref: string, number: number): Promise<Race> {
    const { id, name } = this.#parts.runs.find(ref);
    const found = this.#parts.state.races.of(id).find((race) => race.number === number);
    if (found === undefined) throw new CoppiceError('not_found', `run ${name} has no race ${number}`);
    return raceView(found);
  }

  #begin(runId: string, number: number): void {
    const driven = this.#drive(runId, number)
      .catch((error: unknown) => {
        if (this.#ending.signal.aborted) return;
        if (!(error instanceof CoppiceError))
          this.#parts.logger.error({ err: error, run: runId, race: number }, 'a race failed');
        this.#update(runId, number, {
          state: 'failed',
          reason: (error as Error).message,
          endedAtMs: this.#parts.now(),
        });
      })
      .finally(() => this.#driven.delete(driven));
    this.#driven.add(driven);
  }

  async #drive(runId: string, number: number): Promise<void> {
    const { journal, runs, now } = this.#parts;
    const { spec, step, entries } = this.#record(runId, number)!;
    for (const [index, { run_id }] of entries.entries()) {
      const message = spec.messages[spec.messages.length > 1 ? index : 0];
      await runs.fork(runId, { from: step, message }, { id: run_id });
    }
    journal.step('race.forked');
    await Promise.all(entries.map(({ run_id }) => this.#judge(runId, number, run_id)));
    const judged = this.#record(runId, number);
    if (judged === undefined) return;
    const winner = judged.entries
      .filter(({ exit_code }) => exit_code === 0)
      .sort((a, b) => a.duration_ms! - b.duration_ms!)[0]?.run_id;
    const merged = winner !== undefined && spec.merge && (await this.#merge(runId, winner));
    journal.step('race.merged');
    this.#update(runId, number, {
      state: 'done',
      reason: winner === undefined ? 'none of them was judged a success' : 'the quickest success wins',
      winner: winner ?? null,
      merged,
      endedAtMs: now(),
    });
  }

  /** Once it has ended. One that was judged already is not judged again. */
  async #judge(runId: string, number: number, forkId: string): Promise<void> {
    const { state, runs, exec, journal } = this.#parts;
    const { signal } = this.#ending;
    const entry = this.#record(runId, number)?.entries.find(({ run_id }) => run_id === forkId);
    if (entry === undefined || entry.outcome !== null) return;
    const ended = await this.#end(forkId);
    const fork = ended ? state.runs.byId(forkId) : undefined;
    const duration_ms = fork === undefined ? null : fork.endedAtMs! - fork.createdAtMs;
    let verdict: Pick<RaceEntry, 'exit_code' | 'output'>;
    if (fork === undefined || fork.sandboxId === null || state.sandboxes.byId(fork.sandboxId) === undefined)
      verdict = { exit_code: null, output: fork?.reason ?? 'it was removed' };
    else {
      const { spec } = runs.find(runId);
      const cwd = spec.cwd ?? spec.repo?.path;
      const { judge } = this.#record(runId, number)!.spec;
      const said = await exec(
        fork.sandboxId,
        {
          command: judge,
          ...(cwd === undefined ? {} : { cwd }),
          timeout_ms: judgeMs,
          max_output_bytes: judgeBytes,
        },
        signal,
      );
      verdict = { exit_code: said.exit_code, output: `${said.stdout}${said.stderr}`.slice(-shownChars) };
    }
    signal.throwIfAborted();
    const outcome = fork?.outcome ?? 'cancelled';
    this.#updateEntry(runId, number, forkId, { ...verdict, outcome, duration_ms });
    journal.step('race.judged');
  }

  /** True when it has ended; false when it is gone. */
  #end(forkId: string): Promise<boolean> {
    const { state, log } = this.#parts;
    const { signal } = this.#ending;
    return new Promise((resolve, reject) => {
      const settle = () => {
        const run = state.runs.byId(forkId);
        if (run !== undefined && !hasEnded(run.state)) return;
        stop();
        resolve(run !== undefined);
      };
      const aborted = () => {
        stop();
        reject(signal.reason as Error);
      };
      const forget = log.onCommitted((id) => {
        if (id === forkId) settle();
      });
      const stop = () => {
        forget();
        signal.removeEventListener('abort', aborted);
      };
      signal.addEventListener('abort', aborted);
      if (signal.aborted) aborted();
      else settle();
    });
  }

  /** What is merged already is found the same: doing it again changes nothing. */
  async #merge(runId: string, winner: string): Promise<boolean> {
    const { state, merge } = this.#parts;
    const into = state.runs.byId(runId)?.sandboxId;
    const from = state.runs.byId(winner)?.sandboxId;
    if (into == null || from == null || state.sandboxes.byId(into) === undefined) return false;
    await merge(into, from, this.#ending.signal);
    return true;
  }

  #record(runId: string, number: number): RaceRecord | undefined {
    return this.#parts.state.races.of(runId).find((race) => race.number === number);
  }

  #update(runId: string, number: number, changes: Partial<RaceRecord>): void {
    const { state, journal } = this.#parts;
    const record = this.#record(runId, number);
    // Its run was removed meanwhile, and the race with it.
    if (record !== undefined) journal.commit(() => state.races.put({ ...record, ...changes }));
  }

  #updateEntry(runId: string, number: number, forkId: string, changes: Partial<RaceEntry>): void {
    const record = this.#record(runId, number);
    if (record === undefined) return;
    const entries = record.entries.map((entry) =>
      entry.run_id === forkId ? { ...entry, ...changes } : entry,
    );
    this.#update(runId, number, { entries });
  }
}

const raceView = (race: RaceRecord): Race => ({
  run_id: race.runId,
  number: race.number,
  state: race.state,
  reason: race.reason,
  from_step: race.step,
  judge: race.spec.judge,
  entries: [...race.entries],
  winner: race.winner,
  merged: race.merged,
  created_at: new Date(race.createdAtMs).toISOString(),
  ended_at: race.endedAtMs === null ? null : new Date(race.endedAtMs).toISOString(),
});
