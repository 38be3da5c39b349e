import { setTimeout as sleep } from 'node:timers/promises';
import type { JobInfo } from '@coppice/runtime';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import type { Journal } from '../journal/journal.ts';
import type { Activity } from './activity.ts';
import type { Lifecycle } from './lifecycle.ts';
import type { Machines } from './machines.ts';
import type { Pauser } from './pauser.ts';

/** How long a sandbox may take to say which jobs it has. */
const answerMs = 10_000;
const closeMs = 15_000;

/** Says beforehand that a lifetime ends: a minute, or a tenth of it where that is shorter. */
const warningMs = (lifetimeMs: number): number => Math.min(60_000, lifetimeMs / 10);

export interface IdleWatchParts {
  readonly state: State;
  readonly journal: Journal;
  readonly machines: Machines;
  readonly activity: Activity;
  readonly now: () => number;
  readonly log: Log;
  readonly lifecycle: Lifecycle;
  readonly pauser: Pauser;
  /** After one was destroyed because its lifetime was over. */
  readonly onExpired: (record: SandboxRecord) => Promise<void>;
}

/**
 * Sends idle sandboxes to sleep and ends those whose lifetime is over. All times come from the database, so a restart
 * of the daemon neither forgets nor restarts a clock.
 */
export class IdleWatch {
  readonly #parts: IdleWatchParts;
  readonly #lifecycle: Lifecycle;
  readonly #pauser: Pauser;
  /** What is being done right now, by sandbox. */
  readonly #busy = new Map<string, Promise<void>>();
  #closed = false;

  constructor(parts: IdleWatchParts) {
    this.#parts = parts;
    this.#lifecycle = parts.lifecycle;
    this.#pauser = parts.pauser;
  }

  /** Called from time to time. Waits for no sandbox, so a slow one holds up neither the next look nor the others. */
  look(): void {
    if (this.#closed) return;
    this.save();
    for (const record of this.#parts.state.sandboxes.all())
      if (this.#concerns(record) && !this.#busy.has(record.id))
        this.#busy.set(
          record.id,
          this.#lookAt(record).finally(() => this.#busy.delete(record.id)),
        );
  }

  /** Stops looking. What is under way gets a while to finish; the next daemon settles the rest. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.race([Promise.all(this.#busy.values()), sleep(closeMs, undefined, { ref: false })]);
  }

  async #lookAt(record: SandboxRecord): Promise<void> {
    try {
      if (!(await this.#endLifetime(record))) await this.#sleep(record);
    } catch (error) {
      if (!this.#closed)
        this.#parts.log.warn(
          { err: error, sandbox: record.id },
          'an idle or expired sandbox could not be ended',
        );
    }
  }

  /** Writes down when sandboxes were last used. */
  save(): void {
    const { state, activity } = this.#parts;
    const unsaved = activity.takeUnsaved();
    if (unsaved.length === 0) return;
    state.transaction(() => {
      for (const [id, activeAtMs] of unsaved) state.sandboxes.update(id, { activeAtMs });
    });
  }

  #concerns(record: SandboxRecord): boolean {
    if (record.state === 'creating' || record.state === 'destroying') return false;
    return record.maxLifetimeS !== null || (record.idleTimeoutS !== null && record.state === 'running');
  }

  async #endLifetime(record: SandboxRecord): Promise<boolean> {
    const { now, journal, state } = this.#parts;
    if (record.maxLifetimeS === null) return false;
    const lifetimeMs = record.maxLifetimeS * 1000;
    const endsAtMs = record.createdAtMs + lifetimeMs;
    if (!record.lifetimeWarned) {
      if (now() < endsAtMs - warningMs(lifetimeMs)) return false;
      journal.commit((emit) => {
        state.sandboxes.update(record.id, { lifetimeWarned: true });
        emit('sandbox.lifetime_ending', record.id, {
          name: record.name,
          ends_at: new Date(endsAtMs).toISOString(),
        });
      });
      // Also one whose whole life was shorter than a look, or that expired without a daemon, is warned before it goes.
      return false;
    }
    if (now() >= endsAtMs) {
      await this.#lifecycle.destroy(record.id);
      await this.#parts.onExpired(record);
      return true;
    }
    return false;
  }

  async #sleep(record: SandboxRecord): Promise<void> {
    if (record.state !== 'running' || record.idleTimeoutS === null || !this.#isIdle(record)) return;
    if (await this.#jobRuns(record.id)) {
      this.#parts.activity.touch(record.id);
      return;
    }
    if (record.idleAction === 'stop') {
      await this.#lifecycle.stop(record.id, 5);
      return;
    }
    await this.#pauser.pauseIf(record.id, (current) => this.#isIdle(current));
  }

  #isIdle(record: SandboxRecord): boolean {
    const { activity, now } = this.#parts;
    if (record.idleTimeoutS === null || activity.isHeld(record.id)) return false;
    const lastMs = Math.max(activity.lastMs(record.id) ?? 0, record.activeAtMs, record.startedAtMs ?? 0);
    return now() - lastMs >= record.idleTimeoutS * 1000;
  }

  /** Undefined if its agent does not answer: then its jobs do not keep it awake. */
  async #jobs(id: string): Promise<JobInfo[] | undefined> {
    const guest = this.#parts.machines.get(id)?.guest;
    try {
      return await guest?.until(AbortSignal.timeout(answerMs)).listJobs();
    } catch (error) {
      this.#parts.log.warn({ err: error, sandbox: id }, 'an idle sandbox did not say which jobs it has');
      return undefined;
    }
  }

  /** A job that runs keeps its sandbox awake, unless it was started with keep_awake off. */
  async #jobRuns(id: string): Promise<boolean> {
    // Just after a restart it may not be in hand again yet, and its jobs would go unheard.
    await this.#parts.machines.arrival(id);
    const jobs = await this.#jobs(id);
    return jobs?.some((job) => job.running && job.keepAwake) ?? false;
  }
}
