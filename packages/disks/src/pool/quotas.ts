import { CoppiceError } from '@coppice/protocol';
import { hasErrno } from '../native/errno.ts';
import type { PoolServer } from '../native/pool-server.ts';

/**
 * Counting per subvolume is on when this returns. docs/adr/0002-disk-quota.md says why it is simple quotas and not the
 * counting of references.
 */
export const enableQuotas = async (server: PoolServer, directory: string): Promise<void> => {
  try {
    await server.call('quota-enable', directory);
  } catch (error) {
    if (!hasErrno(error, 'EEXIST')) {
      if (!hasErrno(error, 'EINVAL', 'EOPNOTSUPP')) throw error;
      throw new CoppiceError(
        'unsupported',
        'This kernel has no simple quotas for btrfs, so disks cannot be held to a size.',
        {
          hint: 'Run Linux 6.7 or later, or allow disks without an enforced size in the configuration.',
          cause: error,
        },
      );
    }
  }
  await server.call('quota-sweep', directory);
};
