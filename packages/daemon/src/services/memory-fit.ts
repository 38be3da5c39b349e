import { CoppiceError } from '@coppice/protocol';
import type { SnapshotRecord } from '../db/snapshot-table.ts';
import type { Core } from './core.ts';

/** Memory goes on only under the runtime and on the kind of processor it was kept by. Said before anything is touched. */
export async function assertMemoryFits(core: Core, snapshot: SnapshotRecord): Promise<void> {
  if (snapshot.memoryBytes === null) return;
  const driver = core.starter.driver(snapshot.driver);
  const { memoryCompatibility } = await driver.probe();
  if (driver.restore !== undefined && memoryCompatibility === snapshot.memoryCompatibility) return;
  throw new CoppiceError(
    'unsupported',
    `the memory of checkpoint ${snapshot.name} was kept by ${snapshot.memoryCompatibility}, and this machine has ${memoryCompatibility}`,
    { hint: 'Export it without memory and import that: its files are whole.' },
  );
}
