import { CoppiceError } from '@coppice/protocol';

/** As guest/place/place.h has it: what our programs say when a workspace directory is not what it was. */
const pattern = /workspace-changed: (.+)/;

/** The error for it, where a program that was to start a sandbox said so. */
export const workspaceChanged = (
  said: string,
  workspaceDir: string | undefined,
): CoppiceError | undefined => {
  const change = pattern.exec(said)?.[1];
  if (change === undefined || workspaceDir === undefined) return undefined;
  return new CoppiceError(
    'conflict',
    `the workspace directory ${workspaceDir} is not the one that the sandbox was given: ${change}`,
    {
      hint:
        'Put the directory back. To use what is there now, take a snapshot of the sandbox and make a new one from it: ' +
        '`coppice create --from SNAPSHOT --workspace DIR`.',
    },
  );
};
