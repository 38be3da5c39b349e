import { CoppiceError } from '@coppice/protocol/errors';
import { recoverWorktree } from './recover.ts';
import type { WorkspaceSession } from './workspace-session.ts';

export const requireWorktree = (session: WorkspaceSession, name: string): void => {
  if (session.state.worktrees.has(name)) return;
  throw new CoppiceError('not_found', `there is no worktree ${JSON.stringify(name)}`, {
    hint: 'See `jvs worktree list`.',
  });
};

/** Alone on one worktree, beside others on theirs. */
export const withWorktree = async <Result>(
  session: WorkspaceSession,
  worktree: string,
  work: () => Promise<Result>,
): Promise<Result> => {
  await session.lock('store', true);
  await session.lock(`worktree-${worktree}`);
  session.refresh();
  await recoverWorktree(session, worktree);
  const result = await work();
  await session.unlock(`worktree-${worktree}`);
  await session.unlock('store');
  return result;
};
