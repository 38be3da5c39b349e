import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import { makeSubvolume } from './create-workspace.ts';
import { clearIntent, writeIntent } from './intent.ts';
import { juicefsClone } from './juicefs.ts';
import { killPoint } from './kill-point.ts';
import { checkName } from './names.ts';
import { type RestoreAnswer, rootHash } from './scan-answer.ts';
import type { SnapshotRecord, WorktreeRecord } from './snapshot-record.ts';
import { copyIndex, writeIndexBasis } from './workspace-index.ts';
import type { WorkspaceSession } from './workspace-session.ts';

const isSubvolume = async (session: WorkspaceSession, dir: string): Promise<boolean> =>
  (await session.program.request<{ subvolume: boolean }>('probe', { dir })).subvolume;

/** The whole tree at once, where the snapshot is one. Answers the hash of the new worktree. */
const cloneWhole = async (
  session: WorkspaceSession,
  base: SnapshotRecord,
  name: string,
): Promise<string | undefined> => {
  const { layout, program } = session;
  if (base.storage !== 'tree' || base.partial_paths) return undefined;
  const tree = layout.tree(base.snapshot_id);
  const payload = layout.payload(name);
  if (base.engine === 'juicefs-clone') {
    await juicefsClone(tree, payload);
    return base.payload_root_hash;
  }
  if (!(await isSubvolume(session, tree))) return undefined;
  await program.request('subvolume-snapshot', { from: tree, to: payload });
  if (existsSync(layout.treeIndex(base.snapshot_id))) {
    copyIndex(layout.treeIndex(base.snapshot_id), layout.index(name));
    writeIndexBasis(layout.index(name), base.snapshot_id);
  }
  return base.payload_root_hash;
};

const fill = async (session: WorkspaceSession, base: SnapshotRecord, name: string): Promise<string> => {
  const { layout, program } = session;
  const payload = layout.payload(name);
  const operation = session.newSnapshotId();
  const staging = join(layout.temporary, `fork-${operation}`);
  const newIndex = join(layout.temporary, `${operation}.index`);
  const pack = session.newPack();
  mkdirSync(staging, { mode: 0o700 });
  try {
    const answer = await program.request<RestoreAnswer>('restore', {
      store: layout.control,
      dir: payload,
      newIndex,
      basis: base.snapshot_id,
      pack,
      temporary: true,
      staging,
      kept: layout.kept(operation),
      tree: base.storage === 'tree' ? layout.tree(base.snapshot_id) : undefined,
      to: base.root,
    });
    if (answer.ownersRefused > 0) {
      session.notice(`the owners of ${answer.ownersRefused} entries could not be restored: that takes root`);
    }
    renameSync(newIndex, layout.index(name));
    return rootHash(answer.root);
  } finally {
    rmSync(staging, { recursive: true, force: true });
    rmSync(newIndex, { force: true });
    rmSync(layout.temporaryPack(pack), { force: true });
  }
};

/** A further worktree: what a snapshot holds, or nothing. The caller holds the lock of the new name. */
export const forkWorktree = async (
  session: WorkspaceSession,
  name: string,
  base: SnapshotRecord | undefined,
): Promise<WorktreeRecord> => {
  const { layout, program } = session;
  checkName('worktree', name);
  const folder = layout.worktreeFolder(name);
  if (session.state.worktrees.has(name) || existsSync(folder)) {
    throw new CoppiceError('name_taken', `there is a worktree ${JSON.stringify(name)} already`, {
      hint: 'Choose another name, or remove it with `jvs worktree remove`.',
    });
  }
  const intent = session.newSnapshotId();
  writeIntent(layout, intent, { operation: 'fork', worktree: name });
  killPoint('fork-intent');
  try {
    const payload = layout.payload(name);
    mkdirSync(dirname(payload), { recursive: true });
    rmSync(layout.index(name), { force: true });
    let hash = base ? await cloneWhole(session, base, name) : undefined;
    if (hash === undefined) {
      const onSubvolumes = session.repository.engine === 'btrfs';
      if (onSubvolumes) await makeSubvolume(program, payload);
      else mkdirSync(payload);
      if (base) hash = await fill(session, base, name);
    }
    killPoint('fork-filled');
    await session.commit({
      type: 'worktree_create',
      data: { name, base: base?.snapshot_id ?? null, root_hash: hash ?? null },
    });
    killPoint('fork-committed');
  } catch (error) {
    if (!session.state.worktrees.has(name)) {
      // The program may have ended with the error; then the next command removes what is left.
      await program.request('remove', { path: layout.payload(name) }).then(
        () => program.request('remove', { path: folder }).then(() => clearIntent(layout, intent)),
        () => undefined,
      );
    }
    throw error;
  }
  clearIntent(layout, intent);
  return session.state.worktrees.get(name) as WorktreeRecord;
};
