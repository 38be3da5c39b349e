import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { printable } from '@coppice/console';
import { CoppiceError } from '@coppice/protocol/errors';
import { type EntryChange, pathBytes, type SnapshotRecord, textPatch, type Workspace } from '../index.ts';
import { changeLine, pathText } from './change-lines.ts';
import type { JvsContext } from './jvs-context.ts';

const mostBytes = 1024 * 1024;

type Side = (path: string) => Promise<Buffer>;

/** The content of files of a snapshot, or of the worktree. */
const sideOf = (workspace: Workspace, snapshot: SnapshotRecord | null): Side => {
  if (!snapshot) {
    const payload = workspace.session.layout.payload(workspace.worktree);
    return (path) => readFile(pathBytes(join(payload, path)));
  }
  return async (path) => {
    using tree = workspace.stored(snapshot);
    return tree.read(path, (copy) => readFile(copy));
  };
};

const patchOf = async (change: EntryChange, before: Side, after: Side): Promise<string> => {
  const isFile = change.type === 'f' && change.change !== 'metadata';
  if (!isFile) return `${changeLine(change)}\n`;
  if (Math.max(change.sizeBefore ?? 0, change.sizeAfter ?? 0) > mostBytes)
    return `${changeLine(change)}  (too large to compare)\n`;
  const old = change.hashBefore === null ? null : await before(change.path);
  const now = change.hashAfter === null ? null : await after(change.path);
  if (old?.includes(0) || now?.includes(0)) return `${changeLine(change)}  (binary)\n`;
  // Without lines there is nothing that `patch` could apply.
  if (!old?.length && !now?.length) return `${changeLine(change)}\n`;
  const patch = await textPatch({
    before: old?.toString('utf8') ?? null,
    after: now?.toString('utf8') ?? null,
    name: pathText(change.path),
  });
  return patch ?? `${changeLine(change)}  (too different to compare)\n`;
};

/** `diff --patch`: a unified diff of every text file, and a line for all else. */
export const writePatch = async (
  context: JvsContext,
  workspace: Workspace,
  changes: readonly EntryChange[],
  from: SnapshotRecord,
  to: SnapshotRecord | null,
): Promise<number> => {
  if (context.json || context.args.has('stat'))
    throw new CoppiceError('invalid_argument', '--patch is text: it goes with neither --json nor --stat');
  const [before, after] = [sideOf(workspace, from), sideOf(workspace, to)];
  for (const change of changes) {
    const text = await patchOf(change, before, after);
    context.io.stdout.write(context.io.stdout.isTTY ? printable(text) : text);
  }
  return 0;
};
