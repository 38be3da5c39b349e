import type { JobInfo } from '@coppice/runtime';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import type { Journal } from '../journal/journal.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import type { Activity } from './activity.ts';
import type { Lifecycle } from './lifecycle.ts';
import type { Machines } from './machines.ts';
import type { Pauser } from './pauser.ts';
import type { SandboxFinder } from './sandbox-finder.ts';

/** Says beforehand that a lifetime ends: a minute, or a tenth of it where that is shorter. */
const warningMs = (lifetimeMs: number): number => Math.min(60_000, lifetimeMs / 10);

export interface IdleWatchParts {
  readonly state: State;
  readonly journal: Journal;
  readonly locks: KeyedLock;
  readonly finder: SandboxFinder;
  readonly machines: Machines;
  readonly activity: Activity;
  readonly now: () => number;
  readonly log: Log;
  readonly lifecycle: Lifecycle;
  readonly pauser: Pauser;
}

/**
 * Sends idle sandboxes to sleep and ends those whose lifetime is over. All times come from the database, so a restart
 * of the daemon neither forgets nor restarts a clock.
 */
export class IdleWatch {
  readonly #parts: IdleWatchParts;
  readonly #lifecycle: Lifecycle;
  readonly #pauser: Pauser;
  /** Bytes that the jobs of a sandbox that asked to stay had written when last looked at. */
  readonly #jobBytes = new Map<string, number>();
  /** Sandboxes that something is being done to right now. */
  readonly #busy = new Set<string>();

  constructor(parts: IdleWatchParts) {
    this.#parts = parts;
    this.#lifecycle = parts.lifecycle;
    this.#pauser = parts.pauser;
  }

  /** Called from time to time; a call that takes long does not hold up the next one's other sandboxes. */
  async look(): Promise<void> {
    const { state, log } = this.#parts;
    this.save();
    const records = state.sandboxes.all().filter((record) => !this.#busy.has(record.id));
    await Promise.all(
      records.map(async (record) => {
        if (!this.#concerns(record)) return;
        this.#busy.add(record.id);
        try {
          if (!(await this.#endLifetime(record))) await this.#sleep(record);
        } catch (error) {
          log.warn({ err: error, sandbox: record.id }, 'an idle or expired sandbox could not be ended');
        } finally {
          this.#busy.delete(record.id);
        }
      }),
    );
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
      return true;
    }
    return false;
  }

  async #sleep(record: SandboxRecord): Promise<void> {
    if (record.state !== 'running' || record.idleTimeoutS === null || !this.#isIdle(record)) return;
    if (await this.#jobSpoke(record.id)) {
      this.#parts.activity.touch(record.id);
      return;
    }
    if (record.idleAction === 'stop') {
      await this.#lifecycle.stop(record.id, 5);
      return;
    }
    const { locks, machines, finder } = this.#parts;
    await locks.exclusive(record.id, async () => {
      const current = finder.find(record.id);
      const machine = machines.get(record.id);
      // A call may have come in while this waited for the lock.
      if (current?.state !== 'running' || machine === undefined || !this.#isIdle(current)) return;
      await this.#pauser.pauseLocked(current, machine, 'memory');
    });
  }

  #isIdle(record: SandboxRecord): boolean {
    const { activity, now } = this.#parts;
    if (record.idleTimeoutS === null || activity.isHeld(record.id)) return false;
    const lastMs = Math.max(activity.lastMs(record.id) ?? 0, record.activeAtMs, record.startedAtMs ?? 0);
    return now() - lastMs >= record.idleTimeoutS * 1000;
  }

  /** Output of a job that was started with keep_awake counts as activity. */
  async #jobSpoke(id: string): Promise<boolean> {
    // Just after a restart it may not be in hand again yet, and its jobs would go unheard.
    await this.#parts.machines.arrival(id);
    const jobs = await this.#parts.machines.get(id)?.guest.listJobs();
    const bytes = (jobs ?? [])
      .filter((job: JobInfo) => job.running && job.keepAwake)
      .reduce((sum, job) => sum + job.logBytes, 0);
    const before = this.#jobBytes.get(id);
    this.#jobBytes.set(id, bytes);
    return bytes > 0 && bytes !== before;
  }
}
