import type { IdSource } from '@coppice/protocol';
import type { Network } from '@coppice/runtime';
import type { DiskStore } from '@coppice/store';
import type { State } from '../db/state.ts';
import type { Activity } from './activity.ts';
import type { Journal } from './journal.ts';
import type { KeyedLock } from './keyed-lock.ts';
import type { Log } from './log.ts';
import type { MachineStarter } from './machine-starter.ts';
import type { Machines } from './machines.ts';
import type { SandboxFinder } from './sandbox-finder.ts';
import type { TokenService } from './token-service.ts';

/** What every service of sandboxes and snapshots stands on. */
export interface Core {
  readonly state: State;
  readonly journal: Journal;
  readonly locks: KeyedLock;
  readonly finder: SandboxFinder;
  readonly machines: Machines;
  readonly starter: MachineStarter;
  readonly disks: DiskStore;
  readonly network: Network;
  readonly activity: Activity;
  readonly tokens: TokenService;
  readonly ids: IdSource;
  readonly now: () => number;
  readonly log: Log;
  /** Settles when recovery has swept: before that nothing new is made, as it would be swept too. */
  readonly swept: Promise<void>;
}
