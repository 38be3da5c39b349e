import { requirePayload } from './take-snapshot.ts';
import type { WorkspaceSession } from './workspace-session.ts';

/** What a walk over a directory found. */
export interface FoundTree {
  /** hash:pack:offset:length */
  readonly root: string;
  readonly files: number;
  readonly directories: number;
  readonly bytes: number;
}

export const rootHash = (root: string): string => root.slice(0, 64);

/** Looks at a worktree and stores nothing of it. What was found can be read while `work` is at it. */
export const peekWorktree = async <Result>(
  session: WorkspaceSession,
  worktree: string,
  work: (found: FoundTree) => Result,
): Promise<Result> => {
  requirePayload(session, worktree);
  const found = await session.request<FoundTree>('peek', { worktree });
  try {
    return work(found);
  } finally {
    await session.program.request('drop');
  }
};
