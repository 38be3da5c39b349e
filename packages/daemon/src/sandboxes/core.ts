import type { IdSource } from '@coppice/protocol';
import type { Network } from '@coppice/runtime';
import type { DiskStore } from '@coppice/store';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import type { Journal } from '../journal/journal.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import type { LongWork } from '../journal/long-work.ts';
import type { TokenService } from '../tokens/token-service.ts';
import type { Activity } from './activity.ts';
import type { MachineStarter } from './machine-starter.ts';
import type { Machines } from './machines.ts';
import type { SandboxFinder } from './sandbox-finder.ts';

/** What every service of sandboxes and snapshots stands on. */
export interface Core {
  readonly state: State;
  readonly journal: Journal;
  readonly locks: KeyedLock;
  readonly work: LongWork;
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
