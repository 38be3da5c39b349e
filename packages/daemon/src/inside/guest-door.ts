import { CoppiceError, destinationsOf, mayAskModels, modelVariables } from '@coppice/protocol';
import type { ImageSettings, Machine } from '@coppice/runtime';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import type { Activity } from '../sandboxes/activity.ts';
import type { Machines } from '../sandboxes/machines.ts';
import type { SandboxFinder } from '../sandboxes/sandbox-finder.ts';
import type { GuestAccess, GuestLease } from './guest-access.ts';

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
    if (machine !== undefined) return this.#lease(record, machine);

    // Between two machines of one sandbox, as in a restore, there is a moment without any: whoever holds the lock ends it.
    await locks.shared(record.id, async () => {});
    record = finder.get(record.id);
    if (record.state === 'paused') {
      await waker.resume(record.id);
      record = finder.get(record.id);
    }
    const started = machines.get(record.id);
    if (started === undefined) throw notRunning(record);
    return this.#lease(record, started);
  }

  #lease(record: SandboxRecord, machine: Machine): GuestLease {
    const { activity, imageSettings } = this.#parts;
    const release = activity.hold(record.id);
    return {
      sandboxId: record.id,
      name: record.name,
      ...processDefaults(record, imageSettings(record.imageId)),
      guest: machine.guest,
      touch: () => activity.touch(record.id),
      release,
    };
  }
}

/** What the image says, and over it what the sandbox was given. */
const processDefaults = (
  record: SandboxRecord,
  settings: ImageSettings | undefined,
): Pick<GuestLease, 'env' | 'user' | 'cwd'> => {
  const { allow } = record.network;
  const models = allow.length > 0 && mayAskModels(destinationsOf(allow).names) ? modelVariables : {};
  const env = { ...models, ...settings?.env, ...record.env };
  return settings === undefined ? { env } : { env, user: settings.user, cwd: settings.workingDir };
};

function notRunning(record: SandboxRecord): CoppiceError {
  const why = record.failure === null ? '' : `: ${record.failure}`;
  return new CoppiceError('wrong_state', `sandbox ${record.name} is ${record.state}${why}`, {
    hint: `Start it with \`coppice start ${record.name}\`.`,
    details: { state: record.state },
  });
}
