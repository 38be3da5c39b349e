import { CoppiceError } from '@coppice/protocol';
import type { SandboxRecord } from '../../db/sandbox-table.ts';
import type { MachineStarter } from '../../sandboxes/machine-starter.ts';

/** Refuses where the driver of a sandbox keeps no memory: never something that silently lacks it. */
export const assertKeepsMemory = async (
  starter: MachineStarter,
  record: SandboxRecord,
  hint: string,
): Promise<void> => {
  const reason = await starter.driver(record.driver).memoryRefusal();
  if (reason === undefined) return;
  throw new CoppiceError(
    'unsupported',
    `the driver ${record.driver} of sandbox ${record.name} cannot keep memory: ${reason}`,
    { hint },
  );
};
