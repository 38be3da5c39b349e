import { CoppiceError } from '@coppice/protocol';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { MachineStarter } from './machine-starter.ts';

/** For a sandbox whose driver keeps no memory: never something that silently lacks it. */
export const memoryRefusal = async (
  starter: MachineStarter,
  record: SandboxRecord,
  hint: string,
): Promise<CoppiceError> => {
  const reason = await starter.driver(record.driver).memoryRefusal?.();
  const because = reason === undefined ? '' : `: ${reason}`;
  return new CoppiceError(
    'unsupported',
    `the driver ${record.driver} of sandbox ${record.name} cannot keep memory${because}`,
    { hint },
  );
};
