import { existsSync, rmSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol/errors';
import type { ScanAnswer } from './scan-answer.ts';
import { readIndexBasis } from './workspace-index.ts';
import type { WorkspaceSession } from './workspace-session.ts';

/** Places in the store that an index names can be trusted as long as the snapshot that they are from lives. */
export const indexHolds = (session: WorkspaceSession, worktree: string): boolean => {
  const basis = readIndexBasis(session.layout.index(worktree));
  return basis !== undefined && session.state.snapshots.has(basis);
};

export const payloadOf = (session: WorkspaceSession, worktree: string): string => {
  const payload = session.layout.payload(worktree);
  if (existsSync(payload)) return payload;
  throw new CoppiceError('corrupt', `the directory of the worktree ${worktree} is gone: ${payload}`, {
    hint: 'Run `jvs doctor --repair`: it makes the directory again from the last snapshot.',
  });
};

/** Looks at a worktree without storing its contents; the tree that is found can be read until `drop` is called. */
export const peekWorktree = async (
  session: WorkspaceSession,
  worktree: string,
  only: readonly string[] = [],
): Promise<ScanAnswer & { drop: () => void }> => {
  const pack = session.newPack();
  const drop = (): void => rmSync(session.layout.temporaryPack(pack), { force: true });
  try {
    const answer = await session.program.request<ScanAnswer>('scan', {
      store: session.layout.control,
      dir: payloadOf(session, worktree),
      index: session.layout.index(worktree),
      locations: indexHolds(session, worktree),
      pack,
      temporary: true,
      only,
    });
    return { ...answer, drop };
  } catch (error) {
    drop();
    throw error;
  }
};
