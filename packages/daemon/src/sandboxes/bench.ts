import type { DiskStore } from '@coppice/disks';
import { type IdSource, networkPolicySchema } from '@coppice/protocol';
import type { Machine, Network } from '@coppice/runtime';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import { diskBytes, type MachineStarter } from './machine-starter.ts';

export interface BenchParts {
  readonly disks: DiskStore;
  readonly starter: MachineStarter;
  readonly network: Network;
  readonly ids: IdSource;
}

/** A sandbox for the moment: the files of a snapshot, no network, nothing of the host. */
export interface Bench {
  /** Of its disk. */
  readonly id: string;
  readonly machine: Machine;
  /** Ends the machine; its disk stays until the work is done. */
  stop(): Promise<void>;
}

/**
 * Gives the work a machine on a copy of the snapshot, of the sandbox's own shape. It is in no table: if the daemon dies, the next one
 * sweeps it as what belongs to nobody.
 */
export async function withBench<T>(
  { disks, starter, network, ids }: BenchParts,
  of: SandboxRecord,
  snapshotId: string,
  signal: AbortSignal,
  work: (bench: Bench) => Promise<T>,
): Promise<T> {
  const id = `tmp-${ids.next('sandbox')}`;
  let running: Machine | undefined;
  const stop = async (): Promise<void> => {
    if (running === undefined) return;
    await running.stop(0);
    await network.release(id);
    running = undefined;
  };
  try {
    await disks.cloneDisk(snapshotId, id, diskBytes(of), { signal });
    const record = {
      ...of,
      id,
      mounts: [],
      network: networkPolicySchema.parse({}),
    };
    running = (await starter.start(record, { signal })).machine;
    return await work({ id, machine: running, stop });
  } finally {
    await stop();
    await disks.removeDisk(id);
  }
}
