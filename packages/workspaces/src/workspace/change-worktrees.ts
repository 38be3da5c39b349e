import { existsSync, renameSync, rmSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol/errors';
import { clearIntent, writeIntent } from './intent.ts';
import { killPoint } from './kill-point.ts';
import { peekWorktree, rootHash } from './peek-worktree.ts';
import { refuseMounts } from './refuse-mounts.ts';
import type { SnapshotRecord, WorktreeRecord } from './snapshot-record.ts';
import type { WorkspaceSession } from './workspace-session.ts';

const refuseMain = (name: string, verb: string): void => {
  if (name !== 'main') return;
  throw new CoppiceError('wrong_state', `the first worktree, main, cannot be ${verb}`, {
    hint: 'Only worktrees below worktrees/ can.',
  });
};

const refuseTaken = ({ layout, state }: WorkspaceSession, name: string): void => {
  if (!state.worktrees.has(name) && !existsSync(layout.worktreeFolder(name))) return;
  throw new CoppiceError('name_taken', `there is a worktree ${JSON.stringify(name)} already`, {
    hint: 'Choose another name, or remove it with `jvs worktree remove`.',
  });
};

/** A further worktree: what a snapshot holds, or nothing. The caller holds the lock of the new name. */
export const forkWorktree = async (
  session: WorkspaceSession,
  name: string,
  base: SnapshotRecord | undefined,
): Promise<WorktreeRecord> => {
  refuseTaken(session, name);
  const mode = (0o777 & ~process.umask()).toString(8);
  await session.request('fork', { worktree: name, base: base?.snapshot_id, mode });
  await session.refresh();
  return session.state.worktrees.get(name) as WorktreeRecord;
};

const unsaved = async (session: WorkspaceSession, name: string): Promise<boolean> => {
  if (!existsSync(session.layout.payload(name))) return false;
  const known = session.state.worktrees.get(name)?.saved_root_hash;
  return peekWorktree(
    session,
    name,
    ({ root, files, directories }) => known !== rootHash(root) && (files > 0 || directories > 1),
  );
};

/** The caller holds the lock of the worktree. */
export const removeWorktree = async (
  session: WorkspaceSession,
  name: string,
  force: boolean,
): Promise<void> => {
  const { layout, program } = session;
  refuseMain(name, 'removed');
  refuseMounts(layout.worktreeFolder(name));
  if (!force && (await unsaved(session, name))) {
    throw new CoppiceError('wrong_state', `the worktree ${name} has changes that no snapshot holds`, {
      hint: `Take a snapshot in it first, or use \`jvs worktree remove ${name} --force\`.`,
    });
  }
  const intent = crypto.randomUUID();
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
  refuseTaken(session, to);
  const intent = crypto.randomUUID();
  writeIntent(layout, intent, { operation: 'rename', worktree: from, to });
  renameSync(layout.worktreeFolder(from), layout.worktreeFolder(to));
  killPoint('rename-moved');
  if (existsSync(layout.index(from))) renameSync(layout.index(from), layout.index(to));
  await session.commit({ type: 'worktree_rename', data: { from, to } });
  killPoint('rename-committed');
  clearIntent(layout, intent);
};
