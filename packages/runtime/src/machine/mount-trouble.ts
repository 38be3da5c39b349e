import { CoppiceError } from '@coppice/protocol';
import type { HostMount } from '../driver.ts';

/** As native/mounts/mounts.h has it: what our programs say when the fault lies with a mount. */
const pattern = /mount-(changed|unusable|blocked) (\d+): (.+)/;

const restoreHint =
  'To use what is there now, take a snapshot of the sandbox and make a new one from it: ' +
  '`coppice create --from SNAPSHOT --mount HOST:GUEST`.';

/** The error for it, where a program that was to start a sandbox said so. */
export const mountTrouble = (said: string, mounts: readonly HostMount[] = []): CoppiceError | undefined => {
  const [, kind, number, why] = pattern.exec(said) ?? [];
  const mount = number === undefined ? undefined : mounts[Number(number)];
  if (why === undefined || mount === undefined) return undefined;
  const { hostPath, guestPath } = mount;
  switch (kind) {
    case 'unusable':
      return new CoppiceError('unsupported', `the directory ${hostPath} cannot be mounted: ${why}`, {
        hint: 'Give a directory on ext4, XFS, btrfs or tmpfs.',
      });
    case 'blocked':
      return new CoppiceError('conflict', `${hostPath} cannot be mounted at ${guestPath}: ${why}`, {
        hint:
          'Nothing is mounted through a link of the sandbox. Choose another path inside, or restore a snapshot of the sandbox ' +
          'in which the way there is made of directories.',
      });
    default:
      return new CoppiceError(
        'conflict',
        `the directory ${hostPath} is not the one that the sandbox was given: ${why}`,
        { hint: `Put the directory back. ${restoreHint}` },
      );
  }
};
