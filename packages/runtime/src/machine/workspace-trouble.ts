import { CoppiceError } from '@coppice/protocol';

/** As native/workspace/workspace.h has it: what our programs say when the fault lies with the directory. */
const pattern = /workspace-(changed|unusable): (.+)/;

/** The error for it, where a program that was to start a sandbox said so. */
export const workspaceTrouble = (
  said: string,
  workspaceDir: string | undefined,
): CoppiceError | undefined => {
  const [, kind, why] = pattern.exec(said) ?? [];
  if (why === undefined || workspaceDir === undefined) return undefined;
  if (kind === 'unusable')
    return new CoppiceError('unsupported', `the directory ${workspaceDir} cannot be a workspace: ${why}`, {
      hint: 'Give a directory on ext4, XFS, btrfs or tmpfs.',
    });
  return new CoppiceError(
    'conflict',
    `the workspace directory ${workspaceDir} is not the one that the sandbox was given: ${why}`,
    {
      hint:
        'Put the directory back. To use what is there now, take a snapshot of the sandbox and make a new one from it: ' +
        '`coppice create --from SNAPSHOT --workspace DIR`.',
    },
  );
};
