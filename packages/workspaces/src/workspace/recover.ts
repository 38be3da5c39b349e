import { existsSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import { finishCollection } from './collect-garbage.ts';
import { clearIntent, isAlive, listIntents, type WrittenIntent } from './intent.ts';
import { peekWorktree, rootHash } from './peek-worktree.ts';
import { shortId } from './resolve-reference.ts';
import { restoreWorktree } from './restore-worktree.ts';
import { listRecords } from './stored-records.ts';
import { sweepTemporaries } from './sweep-temporaries.ts';
import type { WorkspaceSession } from './workspace-session.ts';

type Of<Operation> = Extract<WrittenIntent, { operation: Operation }>;

const recoverSnapshot = async (session: WorkspaceSession, intent: Of<'snapshot'>): Promise<void> => {
  const { layout, program, state, notice } = session;
  const short = shortId(intent.snapshotId);
  const taken = (await listRecords(session)).some(
    ({ pack, fate }) => pack === intent.pack && fate === 'live',
  );
  if (state.snapshots.has(intent.snapshotId) || taken)
    notice(`recovered: the snapshot ${short} is complete, though its command was cut off`);
  else {
    await program.request('remove', { path: layout.tree(intent.snapshotId) });
    rmSync(layout.pack(intent.pack), { force: true });
    notice('recovered: a snapshot that was cut off has been dropped; the workspace is as it was');
  }
  rmSync(join(layout.temporary, `${intent.snapshotId}.index`), { force: true });
};

const recoverRestore = async (session: WorkspaceSession, intent: Of<'restore'>): Promise<void> => {
  const { layout, program, state, notice } = session;
  for (const staging of [
    join(layout.temporary, `restore-${intent.id}`),
    join(layout.payload(intent.worktree), `.jvs-restore-${intent.id}`),
  ])
    await program.request('remove', { path: staging });
  rmSync(join(layout.temporary, `${intent.id}.index`), { force: true });
  rmSync(layout.temporaryPack(intent.pack), { force: true });
  const short = shortId(intent.snapshotId);
  const target = state.snapshots.get(intent.snapshotId);
  const hash = await peekWorktree(session, intent.worktree, ({ root }) => rootHash(root));
  if (hash === intent.fromHash) {
    notice(`recovered: a restore to ${short} was cut off before it began; the workspace is as it was`);
    return;
  }
  if (!target) return;
  // Part old, part new, or new without the log knowing it. What is there is kept as a snapshot unless it is known.
  try {
    await restoreWorktree(session, {
      worktree: intent.worktree,
      target,
      paths: intent.paths ?? [],
      discard: false,
    });
  } catch (error) {
    if (!(error instanceof CoppiceError)) throw error;
    throw new CoppiceError(
      error.code,
      `a restore to ${short} was cut off and cannot be finished: ${error.message}`,
      {
        hint: 'Fix that, and the next command finishes the restore. Or restore another snapshot; files that are there now are kept.',
        details: { unfinishedRestore: intent.id },
        cause: error,
      },
    );
  }
  notice(`recovered: a restore to ${short} that was cut off has been finished`);
};

/** The intents of the restore that an error is about, when it is about one that could not be finished. */
export const unfinishedRestores = (
  session: WorkspaceSession,
  worktree: string,
  error: unknown,
): WrittenIntent[] =>
  error instanceof CoppiceError && error.details?.unfinishedRestore !== undefined
    ? listIntents(session.layout).filter(
        (intent) => intent.operation === 'restore' && intent.worktree === worktree,
      )
    : [];

const recoverFork = async (session: WorkspaceSession, intent: Of<'fork'>): Promise<void> => {
  const { layout, program, state, notice } = session;
  if (state.worktrees.has(intent.worktree)) {
    notice(`recovered: the worktree ${intent.worktree} is complete, though its command was cut off`);
    return;
  }
  await program.request('remove', { path: layout.payload(intent.worktree) });
  await program.request('remove', { path: layout.worktreeFolder(intent.worktree) });
  rmSync(layout.index(intent.worktree), { force: true });
  notice(`recovered: the worktree ${intent.worktree}, whose making was cut off, has been removed`);
};

const recoverRemoval = async (session: WorkspaceSession, intent: Of<'remove'>): Promise<void> => {
  const { layout, program, state, notice } = session;
  if (state.worktrees.has(intent.worktree)) {
    notice(`recovered: the removal of the worktree ${intent.worktree} was cut off before it began`);
    return;
  }
  await program.request('remove', { path: layout.payload(intent.worktree) });
  await program.request('remove', { path: layout.worktreeFolder(intent.worktree) });
  rmSync(layout.index(intent.worktree), { force: true });
  notice(`recovered: the removal of the worktree ${intent.worktree} has been finished`);
};

const recoverRename = async (session: WorkspaceSession, intent: Of<'rename'>): Promise<void> => {
  const { layout, state, notice } = session;
  const { worktree: from, to } = intent;
  if (state.worktrees.has(to)) {
    notice(`recovered: the worktree ${from} is called ${to} now, though the command was cut off`);
    return;
  }
  if (!existsSync(layout.worktreeFolder(from)))
    renameSync(layout.worktreeFolder(to), layout.worktreeFolder(from));
  if (!existsSync(layout.index(from)) && existsSync(layout.index(to)))
    renameSync(layout.index(to), layout.index(from));
  notice(`recovered: the renaming of the worktree ${from} was cut off; it keeps its name`);
};

const recoverOne = (session: WorkspaceSession, intent: WrittenIntent): Promise<void> => {
  switch (intent.operation) {
    case 'snapshot':
      return recoverSnapshot(session, intent);
    case 'restore':
      return recoverRestore(session, intent);
    case 'fork':
      return recoverFork(session, intent);
    case 'remove':
      return recoverRemoval(session, intent);
    case 'rename':
      return recoverRename(session, intent);
  }
};

/** Finishes or undoes what commands on this worktree left when they were killed. The caller holds its lock. */
export const recoverWorktree = async (session: WorkspaceSession, worktree: string): Promise<void> => {
  for (const intent of listIntents(session.layout)) {
    if (intent.worktree !== worktree) continue;
    sweepTemporaries(session.layout);
    await session.refresh();
    await recoverOne(session, intent);
    clearIntent(session.layout, intent.id);
  }
};

/** How long the lock of a command that is dead can outlive it: its helper ends with it, but not in the same instant. */
const dyingMs = 5000;

/** What cannot be settled is said, and does not keep other commands from their work. */
const tryToRecover = async (session: WorkspaceSession, worktree: string, waitMs: number): Promise<void> => {
  const lock = `worktree-${worktree}`;
  if (!(await session.tryLock('store', true, waitMs))) return;
  const alone = await session.tryLock(lock, false, waitMs);
  try {
    if (alone) await recoverWorktree(session, worktree);
  } catch (error) {
    if (!(error instanceof CoppiceError)) throw error;
    session.notice(`not recovered: ${error.message}`);
  } finally {
    await session.unlock(...(alone ? [lock] : []), 'store');
  }
};

/** The same for every worktree on which no command is at work. */
export const recoverWorkspace = async (session: WorkspaceSession): Promise<void> => {
  if (!session.logIsReadable) return;
  const patience = new Map<string, number>();
  for (const { worktree, pid } of listIntents(session.layout)) {
    patience.set(worktree, isAlive(pid) ? (patience.get(worktree) ?? 0) : dyingMs);
  }
  for (const [worktree, waitMs] of patience) await tryToRecover(session, worktree, waitMs);
  await session.refresh();
};

/** Goes on with a collection that was cut off, unless it is still at work. */
export const recoverCollection = async (session: WorkspaceSession): Promise<void> => {
  const { unfinishedCollection: unfinished } = session.state;
  if (!unfinished || !(await session.tryLock('store', false, isAlive(unfinished.pid) ? 0 : dyingMs))) return;
  try {
    await session.refresh();
    await finishCollection(session);
  } catch (error) {
    if (!(error instanceof CoppiceError)) throw error;
    session.notice(`not recovered: a collection was cut off and cannot be finished: ${error.message}`);
  } finally {
    await session.unlock('store');
  }
};
