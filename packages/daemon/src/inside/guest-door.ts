import {
  CoppiceError,
  destinationsOf,
  mayAskModels,
  modelVariables,
  trustVariables,
  workDirectory,
} from '@coppice/protocol';
import type { ImageSettings, Machine } from '@coppice/runtime';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import type { Activity } from '../sandboxes/activity.ts';
import type { Machines } from '../sandboxes/machines.ts';
import type { SandboxFinder } from '../sandboxes/sandbox-finder.ts';
import { mountedIn } from '../sandboxes/views.ts';
import type { GuestAccess, GuestLease } from './guest-access.ts';
import { LimitWatch } from './limit-watch.ts';

interface Waker {
  resume(ref: string): Promise<unknown>;
}

export interface GuestDoorParts {
  readonly finder: SandboxFinder;
  readonly machines: Machines;
  readonly activity: Activity;
  readonly locks: KeyedLock;
  readonly waker: Waker;
  /** What an image says about processes that run in it. */
  readonly imageSettings: (imageId: string) => ImageSettings | undefined;
  /** Lets programs of a sandbox that uses secrets trust the gateway. */
  readonly trust: { ensure(machine: Machine, secrets: readonly string[]): Promise<void> };
}

/** Gives out leases; the common path, a sandbox that runs, takes no lock and awaits nothing. */
export class GuestDoor implements GuestAccess {
  readonly #parts: GuestDoorParts;

  constructor(parts: GuestDoorParts) {
    this.#parts = parts;
  }

  async acquire(ref: string): Promise<GuestLease> {
    const { finder, machines, locks, waker } = this.#parts;
    let record = finder.get(ref);
    const arrival = machines.arrival(record.id);
    if (arrival !== undefined) await arrival;
    const machine = machines.get(record.id);
    if (machine !== undefined) return this.#trusted(record, machine);

    // Between two machines of one sandbox, as in a restore, there is a moment without any: whoever holds the lock ends it.
    await locks.shared(record.id, async () => {});
    record = finder.get(record.id);
    if (record.state === 'paused') {
      await waker.resume(record.id);
      record = finder.get(record.id);
    }
    const started = machines.get(record.id);
    if (started === undefined) throw notRunning(record);
    return this.#trusted(record, started);
  }

  #trusted(record: SandboxRecord, machine: Machine): GuestLease | Promise<GuestLease> {
    if (!record.network.allow.some(isSecret)) return this.#lease(record, machine);
    const { secrets } = destinationsOf(record.network.allow);
    return this.#parts.trust.ensure(machine, secrets).then(() => this.#lease(record, machine));
  }

  #lease(record: SandboxRecord, machine: Machine): GuestLease {
    const { activity, imageSettings } = this.#parts;
    const release = activity.hold(record.id);
    return {
      sandboxId: record.id,
      name: record.name,
      ...processDefaults(record, imageSettings(record.imageId)),
      guest: machine.guest,
      watchLimits: () => new LimitWatch(machine),
      touch: () => activity.touch(record.id),
      release,
    };
  }
}

const isSecret = (entry: string): boolean => entry.startsWith('secret:');

/** What the image says, and over it what the sandbox was given. Where neither says, commands start in /workspace if there is one. */
const processDefaults = (
  record: SandboxRecord,
  settings: ImageSettings | undefined,
): Pick<GuestLease, 'env' | 'user' | 'cwd'> => {
  const { allow } = record.network;
  const models = allow.length > 0 && mayAskModels(destinationsOf(allow).names) ? modelVariables : {};
  const trust = allow.some(isSecret) ? trustVariables : {};
  const env = { ...models, ...trust, ...settings?.env, ...record.env };
  const cwd = mountedIn(record).includes(workDirectory) ? workDirectory : settings?.workingDir;
  return { env, user: settings?.user, cwd };
};

function notRunning(record: SandboxRecord): CoppiceError {
  const why = record.failure === null ? '' : `: ${record.failure}`;
  return new CoppiceError('wrong_state', `sandbox ${record.name} is ${record.state}${why}`, {
    hint: `Start it with \`coppice start ${record.name}\`.`,
    details: { state: record.state },
  });
}
