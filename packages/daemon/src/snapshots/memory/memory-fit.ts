import { CoppiceError } from '@coppice/protocol';
import { memoryMisfit } from '@coppice/runtime';
import type { SnapshotRecord } from '../../db/snapshot-table.ts';
import type { Core } from '../../sandboxes/core.ts';

/** What keeps the memory from going on here: the runtime or the processor is another. */
export async function memoryMisfitHere(
  core: Core,
  memory: Pick<SnapshotRecord, 'driver' | 'memoryCompatibility'>,
): Promise<string | undefined> {
  const driver = core.starter.driver(memory.driver);
  const { memoryCompatibility } = await driver.probe();
  return memoryMisfit(memory.memoryCompatibility ?? '', memoryCompatibility);
}

/** Said before anything is touched. */
export async function assertMemoryFits(core: Core, snapshot: SnapshotRecord): Promise<void> {
  if (snapshot.memoryBytes === null) return;
  const misfit = await memoryMisfitHere(core, snapshot);
  if (misfit === undefined) return;
  throw new CoppiceError('unsupported', `the memory of checkpoint ${snapshot.name} cannot go on: ${misfit}`, {
    hint: 'Export it with --no-memory and import that: its files are whole.',
  });
}
