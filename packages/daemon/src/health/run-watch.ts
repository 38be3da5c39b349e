import { createWriteStream } from 'node:fs';
import { mkdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import {
  CoppiceError,
  createSnapshotSchema,
  type Event,
  hasEnded,
  networkPatchSchema,
  type RunHealth,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { RunRecord } from '../db/run-table.ts';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import type { Journal } from '../journal/journal.ts';
import { KeyedLock } from '../journal/keyed-lock.ts';
import { hasDied } from '../runs/run-death.ts';
import type { RunLog } from '../runs/run-log.ts';
import { mayRestart, type RestartLimits } from './restart-policy.ts';
import { type PulseLimits, pulseOf } from './run-pulse.ts';

export interface RunWatchParts {
  readonly state: State;
  readonly journal: Journal;
  readonly log: RunLog;
  readonly logger: Log;
  readonly now: () => number;
  readonly limits: PulseLimits & RestartLimits & { readonly graceMs: number };
  /** Asks the sandbox whether the agent's process is alive. */
  readonly isAlive: (sandboxId: string, jobId: number) => Promise<boolean>;
  readonly runs: {
    find(ref: string): RunRecord;
    interrupt(ref: string, reason: string): Promise<unknown>;
    pause(ref: string, reason: string): Promise<unknown>;
    resume(ref: string, reason: string): Promise<unknown>;
    stop(ref: string, reason: string): Promise<unknown>;
    rewind(ref: string, input: { to: number; message?: string | undefined }): Promise<unknown>;
  };
  readonly network: {
    policy(sandboxId: string): object;
    patch(sandboxId: string, input: z.output<typeof networkPatchSchema>): Promise<unknown>;
  };
  readonly snapshots: {
    create(
      ref: string,
      input: z.output<typeof createSnapshotSchema>,
      options: { by: 'admin' },
    ): Promise<{ id: string }>;
    export(
      ref: string,
      options: { memory: boolean; image: boolean; env: boolean },
    ): Promise<{ bytes: AsyncIterable<Uint8Array> }>;
  };
  /** Where evidence is kept. */
  readonly directory: string;
}

interface Seen {
  beatMs: number;
  eventMs: number;
  health: RunHealth['health'];
  /** Since when a graceful end has been asked for. */
  askedMs: number | undefined;
}

const hourMs = 3_600_000;
const closed = {
  allow_internet: false,
  allow_inter_sandbox: false,
  allow: [],
  allowed_ports: [],
  allow_host_ports: [],
  deny: [],
  ask: false,
};

/**
 * Watches the runs at work from outside: whether the process is alive, whether anything happens, whether a model is being asked. The agent
 * has no part in it, so one that hangs is noticed too. What dies or hangs is restarted from its last step, within limits that outlive
 * the daemon; beyond them a person is asked for.
 */
export class RunWatch {
  readonly #parts: RunWatchParts;
  readonly #seen = new Map<string, Seen>();
  readonly #open = new Map<string, Set<string>>();
  readonly #locks = new KeyedLock();
  #closed = false;

  constructor(parts: RunWatchParts) {
    this.#parts = parts;
    parts.journal.onCommitted((events) => this.#hear(events));
  }

  close(): void {
    this.#closed = true;
  }

  /** One round over all runs. */
  async look(): Promise<void> {
    if (this.#closed) return;
    const { state, logger } = this.#parts;
    const runs = state.runs.all();
    await Promise.all(
      runs.map((run) =>
        this.#locks
          .exclusive(run.id, () => this.#lookAt(run.id))
          .catch((error: unknown) => {
            if (!this.#closed)
              logger.error({ err: error, run: run.id }, 'the health of a run could not be looked at');
          }),
      ),
    );
    for (const id of this.#seen.keys()) if (state.runs.byId(id) === undefined) this.#seen.delete(id);
  }

  list(): RunHealth[] {
    const { state } = this.#parts;
    return state.runs
      .all()
      .filter((run) => !hasEnded(run.state) || state.guardian.quarantine(run.id) !== undefined)
      .map((run) => this.#view(run));
  }

  async quarantine(ref: string, reason: string, tokenId: string | undefined): Promise<RunHealth> {
    const { state, log, runs, network, now } = this.#parts;
    const run = runs.find(ref);
    const { sandboxId } = run;
    if (sandboxId === null)
      throw new CoppiceError('wrong_state', `run ${run.name} has no sandbox to cut off`);
    const by = this.#nameOf(tokenId);
    return this.#locks.exclusive(run.id, async () => {
      const known = state.guardian.quarantine(run.id);
      if (known === undefined)
        state.guardian.setQuarantine({
          runId: run.id,
          reason,
          by,
          atMs: now(),
          network: JSON.stringify(network.policy(sandboxId)),
          evidence: null,
        });
      await network.patch(sandboxId, networkPatchSchema.parse(closed));
      const evidence = await this.#keepEvidence(run, sandboxId);
      if (runs.find(run.id).state === 'running') await this.#freeze(run.id, `quarantine: ${reason}`);
      log.commit(run.id, ({ emit }) => {
        state.guardian.setQuarantine({ ...state.guardian.quarantine(run.id)!, evidence });
        emit('health.quarantined', 'user', { reason, by, evidence });
      });
      return this.#view(runs.find(run.id));
    });
  }

  /** By a person, who says why. */
  async clear(ref: string, reason: string, tokenId: string | undefined): Promise<RunHealth> {
    const { state, log, runs, network } = this.#parts;
    const run = runs.find(ref);
    const record = state.guardian.quarantine(run.id);
    if (record === undefined) throw new CoppiceError('wrong_state', `run ${run.name} is not in quarantine`);
    const by = this.#nameOf(tokenId);
    return this.#locks.exclusive(run.id, async () => {
      if (run.sandboxId !== null)
        await network.patch(run.sandboxId, networkPatchSchema.parse(JSON.parse(record.network)));
      log.commit(run.id, ({ emit }) => {
        state.guardian.clearQuarantine(run.id);
        emit('health.cleared', 'user', { reason, by });
      });
      if (runs.find(run.id).paused) await runs.resume(run.id, `out of quarantine: ${reason}`);
      this.#seen.delete(run.id);
      return this.#view(runs.find(run.id));
    });
  }

  /** Where memory cannot be kept, the run is stopped: its disk is in the evidence, and it can go on from a step. */
  async #freeze(runId: string, reason: string): Promise<void> {
    const { runs } = this.#parts;
    try {
      await runs.pause(runId, reason);
    } catch (error) {
      if (!(error instanceof CoppiceError) || error.code !== 'unsupported') throw error;
      await runs.stop(runId, reason);
    }
  }

  /** The disk as it is, in one file that can be carried away. It appears whole or not at all. */
  async #keepEvidence(run: RunRecord, sandboxId: string): Promise<string> {
    const { snapshots, directory, now } = this.#parts;
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const name = `evidence-${now()}`;
    const { id } = await snapshots.create(sandboxId, createSnapshotSchema.parse({ name }), { by: 'admin' });
    const file = join(directory, `${run.id}-${now()}.coppice`);
    try {
      const { bytes } = await snapshots.export(id, { memory: false, image: true, env: false });
      await pipeline(Readable.from(bytes), createWriteStream(`${file}.new`, { mode: 0o600 }));
      await rename(`${file}.new`, file);
    } finally {
      await rm(`${file}.new`, { force: true });
    }
    return file;
  }

  async #lookAt(runId: string): Promise<void> {
    const { state, now } = this.#parts;
    const run = state.runs.byId(runId);
    if (run === undefined || this.#closed || state.guardian.quarantine(runId) !== undefined) return;
    if (run.state === 'failed') {
      if (hasDied(run.reason)) await this.#restart(run, run.reason);
      return;
    }
    if (run.state !== 'running' || run.paused || run.sandboxId === null || run.jobId === null) {
      this.#seen.delete(runId);
      return;
    }
    const seen = this.#seenOf(run);
    if (await this.#beats(run.sandboxId, run.jobId)) seen.beatMs = now();
    await this.#judge(run, seen);
  }

  async #judge(run: RunRecord, seen: Seen): Promise<void> {
    const { now, limits, log, runs } = this.#parts;
    const openCalls = this.#open.get(run.id)?.size ?? 0;
    const pulse = pulseOf({ ...seen, openCalls }, now(), limits);
    if (pulse.health !== seen.health) {
      const from = seen.health;
      seen.health = pulse.health;
      log.commit(run.id, ({ emit }) =>
        emit('health.changed', 'daemon', { from, to: pulse.health, reason: pulse.reason }),
      );
    }
    if (pulse.health === 'well' || pulse.health === 'degraded') {
      seen.askedMs = undefined;
      return;
    }
    // First in good manners: an agent that listens ends its turn and what it started.
    if (seen.askedMs === undefined && pulse.health === 'stuck') {
      seen.askedMs = now();
      await runs.interrupt(run.id, pulse.reason);
      return;
    }
    if (seen.askedMs !== undefined && now() - seen.askedMs < limits.graceMs) return;
    await this.#restart(run, pulse.reason);
  }

  async #restart(run: RunRecord, reason: string): Promise<void> {
    const { state, log, runs, now, limits } = this.#parts;
    const past = state.guardian.restarts(run.id, 0).map(({ atMs }) => atMs);
    const step = state.runSteps
      .of(run.id)
      .filter(({ snapshotId }) => snapshotId !== null)
      .at(-1);
    const verdict = mayRestart(past, now(), { perHour: limits.perHour, cooldownMs: limits.cooldownMs });
    if (verdict.decision === 'wait') return;
    if (verdict.decision === 'escalate' || step === undefined) {
      this.#escalate(
        run,
        step === undefined ? `${reason}; there is no step to go back to` : reason,
        past.length,
      );
      return;
    }
    // On record before it is done: a daemon that dies here counts it all the same.
    log.commit(run.id, ({ emit, run: current }) => {
      state.guardian.addRestart(run.id, now(), reason);
      emit('agent.restarted', 'daemon', { attempt: current.attempt + 1, reason });
    });
    this.#seen.delete(run.id);
    await runs.rewind(run.id, { to: step.number });
  }

  #escalate(run: RunRecord, reason: string, restarts: number): void {
    const { log, now } = this.#parts;
    const told = log.last(run.id, 'health.escalated');
    // Once for each hour, and for each end.
    if (told !== undefined && Date.parse(told.at) > Math.max(now() - hourMs, run.endedAtMs ?? 0)) return;
    log.commit(run.id, ({ emit }) => emit('health.escalated', 'daemon', { reason, restarts }));
  }

  async #beats(sandboxId: string, jobId: number): Promise<boolean> {
    const { isAlive, limits } = this.#parts;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<boolean>((resolve) => {
      timer = setTimeout(() => resolve(false), limits.intervalMs);
    });
    try {
      return await Promise.race([isAlive(sandboxId, jobId).catch(() => false), late]);
    } finally {
      clearTimeout(timer);
    }
  }

  #hear(events: readonly Event[]): void {
    for (const { type, data } of events) {
      if (!type.startsWith('model.')) continue;
      const { run, call } = data as { run?: string | null; call?: string };
      if (typeof run !== 'string' || typeof call !== 'string') continue;
      const open = this.#open.get(run) ?? new Set();
      if (type === 'model.request') this.#open.set(run, open.add(call));
      else if (type === 'model.settled') open.delete(call);
      if (open.size === 0) this.#open.delete(run);
      const seen = this.#seen.get(run);
      if (seen !== undefined) seen.eventMs = this.#parts.now();
    }
  }

  /** The time of the last event is on record, so a new daemon does not take a stuck run for a fresh one. */
  #seenOf(run: RunRecord): Seen {
    const { now } = this.#parts;
    const known = this.#seen.get(run.id);
    const lastMs = this.#lastEventMs(run);
    if (known !== undefined) {
      known.eventMs = Math.max(known.eventMs, lastMs);
      return known;
    }
    const fresh: Seen = { beatMs: now(), eventMs: lastMs, health: 'well', askedMs: undefined };
    this.#seen.set(run.id, fresh);
    return fresh;
  }

  #lastEventMs(run: RunRecord): number {
    const { log, now } = this.#parts;
    // Nothing more of what it does is written down.
    if (log.isFull(run)) return now();
    const own = (type: string): boolean => !type.startsWith('health.') && type !== 'agent.heartbeat';
    const last = log
      .latest(run, 50)
      .filter(({ type }) => own(type))
      .at(-1);
    return last === undefined ? (run.startedAtMs ?? now()) : Date.parse(last.at);
  }

  #view(run: RunRecord): RunHealth {
    const { state, now, limits } = this.#parts;
    const seen = this.#seen.get(run.id);
    const record = state.guardian.quarantine(run.id);
    const openCalls = this.#open.get(run.id)?.size ?? 0;
    const pulse =
      seen === undefined
        ? { health: 'well' as const, reason: `it is ${run.paused ? 'paused' : run.state}`, missed: 0 }
        : pulseOf({ ...seen, openCalls }, now(), limits);
    return {
      run_id: run.id,
      name: run.name,
      health: pulse.health,
      reason: pulse.reason,
      missed: pulse.missed,
      last_heartbeat_age_ms: seen === undefined ? null : now() - seen.beatMs,
      last_event_age_ms: Math.max(0, now() - this.#lastEventMs(run)),
      open_model_calls: openCalls,
      restarts: state.guardian.restarts(run.id, now() - hourMs).length,
      quarantine:
        record === undefined
          ? null
          : {
              reason: record.reason,
              by: record.by,
              at: new Date(record.atMs).toISOString(),
              evidence: record.evidence,
            },
    };
  }

  #nameOf(tokenId: string | undefined): string {
    return this.#parts.state.tokens.all().find(({ id }) => id === tokenId)?.name ?? 'unknown';
  }
}
