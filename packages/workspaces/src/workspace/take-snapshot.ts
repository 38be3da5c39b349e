import { existsSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol/errors';
import { parseEngine } from './engine.ts';
import { checkNote, checkTag } from './names.ts';
import type { SnapshotRecord } from './snapshot-record.ts';
import type { WorkspaceSession } from './workspace-session.ts';

export interface SnapshotRequest {
  readonly worktree: string;
  readonly note: string;
  readonly tags: readonly string[];
  /** Relative to the worktree's directory; none: all of it. */
  readonly paths: readonly string[];
}

/** For snapshots, and for what a restore keeps: the engine that was asked for, and where it can be looked for. */
export const engineWords = (
  session: WorkspaceSession,
): { engine: string | undefined; mounts: string | undefined } => {
  const asked = session.env.JVS_ENGINE || session.settings.default_engine;
  return { engine: asked === 'auto' ? undefined : parseEngine(asked), mounts: session.mountsFile };
};

export const requirePayload = (session: WorkspaceSession, worktree: string): void => {
  const payload = session.layout.payload(worktree);
  if (existsSync(payload)) return;
  throw new CoppiceError('corrupt', `the directory of the worktree ${worktree} is gone: ${payload}`, {
    hint: 'Run `jvs doctor --repair`: it makes the directory again from the last snapshot.',
  });
};

/** The caller holds the lock of the worktree, and the store's as a sharer. */
export const takeSnapshot = async (
  session: WorkspaceSession,
  { worktree, note, tags, paths }: SnapshotRequest,
): Promise<SnapshotRecord> => {
  requirePayload(session, worktree);
  const taken = await session.request<SnapshotRecord>('snapshot', {
    worktree,
    note: checkNote(note),
    tag: [...new Set(tags.map(checkTag))],
    only: paths,
    ...engineWords(session),
  });
  await session.refresh();
  return taken;
};
