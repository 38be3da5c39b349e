import { CoppiceError } from '@coppice/protocol/errors';

/** Something that `doctor` has to say. */
export interface Finding {
  readonly severity: 'error' | 'warning' | 'info';
  readonly category:
    | 'repository'
    | 'settings'
    | 'log'
    | 'payload'
    | 'history'
    | 'intent'
    | 'leftover'
    | 'worktree'
    | 'engine'
    | 'repair';
  readonly description: string;
  readonly fix: string;
}

const isRefusal = (error: unknown): boolean =>
  error instanceof CoppiceError
    ? error.code === 'forbidden'
    : ['EACCES', 'EPERM'].includes((error as NodeJS.ErrnoException).code ?? '');

/** Whatever one look at the workspace fails at is a finding, and the others go on. */
export const guarded = async (
  category: Finding['category'],
  look: () => Promise<readonly Finding[]>,
): Promise<readonly Finding[]> => {
  try {
    return await look();
  } catch (error) {
    const fix = isRefusal(error)
      ? 'Run it as the owner of the workspace, or give them that file with chown.'
      : error instanceof CoppiceError
        ? error.hint
        : 'Put the workspace back from a backup.';
    return [{ severity: 'error', category, description: (error as Error).message, fix }];
  }
};
