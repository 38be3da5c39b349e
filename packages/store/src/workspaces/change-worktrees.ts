import { existsSync, renameSync, rmSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol/errors';
import { clearIntent, writeIntent } from './intent.ts';
import { killPoint } from './kill-point.ts';
import { rootHash } from './scan-answer.ts';
import type { WorkspaceSession } from './workspace-session.ts';
import { peekWorktree } from './worktree-scan.ts';

const refuseMain = (name: string, verb: string): void => {
  if (name !== 'main') return;
  throw new CoppiceError('wrong_state', `the first worktree, main, cannot be ${verb}`, {
    hint: 'Only worktrees below worktrees/ can.',
  });
};

const unsaved = async (session: WorkspaceSession, name: string): Promise<boolean> => {
  if (!existsSync(session.layout.payload(name))) return false;
  const found = await peekWorktree(session, name);
  found.drop();
  const known = session.state.worktrees.get(name)?.saved_root_hash;
  return known !== rootHash(found.root) && (found.files > 0 || found.directories > 1);
};

/** The caller holds the lock of the worktree. */
export const removeWorktree = async (
  session: WorkspaceSession,
  name: string,
  force: boolean,
): Promise<void> => {
  const { layout, program } = session;
  refuseMain(name, 'removed');
  if (!force && (await unsaved(session, name))) {
    throw new CoppiceError('wrong_state', `the worktree ${name} has changes that no snapshot holds`, {
      hint: `Take a snapshot in it first, or use \`jvs worktree remove ${name} --force\`.`,
    });
  }
  const intent = session.newSnapshotId();
  writeIntent(layout, intent, { operation: 'remove', worktree: name });
  killPoint('remove-intent');
  await session.commit({ type: 'worktree_remove', data: { name } });
  killPoint('remove-committed');
  await program.request('remove', { path: layout.payload(name) });
  await program.request('remove', { path: layout.worktreeFolder(name) });
  rmSync(layout.index(name), { force: true });
  clearIntent(layout, intent);
};

/** The caller holds the locks of both names. */
export const renameWorktree = async (session: WorkspaceSession, from: string, to: string): Promise<void> => {
  const { layout } = session;
  refuseMain(from, 'renamed');
  if (session.state.worktrees.has(to) || existsSync(layout.worktreeFolder(to))) {
    throw new CoppiceError('name_taken', `there is a worktree ${JSON.stringify(to)} already`);
  }
  const intent = session.newSnapshotId();
  writeIntent(layout, intent, { operation: 'rename', worktree: from, to });
  renameSync(layout.worktreeFolder(from), layout.worktreeFolder(to));
  killPoint('rename-moved');
  if (existsSync(layout.index(from))) renameSync(layout.index(from), layout.index(to));
  await session.commit({ type: 'worktree_rename', data: { from, to } });
  killPoint('rename-committed');
  clearIntent(layout, intent);
};
