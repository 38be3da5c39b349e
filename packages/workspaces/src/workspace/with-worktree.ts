import { CoppiceError } from '@coppice/protocol/errors';
import { clearIntent } from './intent.ts';
import { recoverWorktree, unfinishedRestores } from './recover.ts';
import type { WorkspaceSession } from './workspace-session.ts';

export const requireWorktree = (session: WorkspaceSession, name: string): void => {
  if (session.state.worktrees.has(name)) return;
  throw new CoppiceError('not_found', `there is no worktree ${JSON.stringify(name)}`, {
    hint: 'See `jvs worktree list`.',
  });
};

/** Alone on these worktrees, beside others on theirs. What killed commands left on them is settled first. */
export const withWorktrees = async <Result>(
  session: WorkspaceSession,
  worktrees: readonly string[],
  work: () => Promise<Result>,
): Promise<Result> => {
  // In one order, so that two commands never wait for each other.
  const locks = [...new Set(worktrees)].sort().map((name) => `worktree-${name}`);
  await session.lock('store', true);
  try {
    for (const lock of locks) await session.lock(lock);
    await session.refresh();
    for (const worktree of worktrees) await recoverWorktree(session, worktree);
    return await work();
  } finally {
    await session.unlock(...locks, 'store');
  }
};

/** For a restore: one that was cut off and cannot be finished does not stand in the way of another. */
export const withWorktreeToReplace = async <Result>(
  session: WorkspaceSession,
  worktree: string,
  work: () => Promise<Result>,
): Promise<Result> => {
  try {
    return await withWorktrees(session, [worktree], work);
  } catch (error) {
    const abandoned = unfinishedRestores(session, worktree, error);
    if (abandoned.length === 0) throw error;
    for (const intent of abandoned) clearIntent(session.layout, intent.id);
    return withWorktrees(session, [worktree], work);
  }
};
