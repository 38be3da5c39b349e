import { CoppiceError } from '@coppice/protocol/errors';
import { type SnapshotRecord, shortId, type Workspace } from '@coppice/store/workspaces';
import { printable } from '../../ui/format.ts';
import type { JvsCommand } from '../command.ts';
import type { JvsContext } from '../jvs-context.ts';
import { snapshotLine } from '../snapshot-lines.ts';

const mostShown = 20;

const choose = async (
  context: JvsContext,
  workspace: Workspace,
  words: string | undefined,
): Promise<SnapshotRecord> => {
  const wanted = words?.toLowerCase() ?? '';
  const found = workspace
    .history({ all: true, tags: [], grep: undefined, limit: undefined })
    .filter(({ snapshot_id, note, tags }) =>
      [snapshot_id, note, ...tags].some((text) => text.toLowerCase().includes(wanted)),
    )
    .slice(0, mostShown);
  if (found.length === 0)
    throw new CoppiceError('not_found', `no snapshot fits ${JSON.stringify(words ?? '')}`);
  found.forEach((snapshot, index) => {
    context.io.stderr.write(`${String(index + 1).padStart(3)}  ${snapshotLine(snapshot, false, false)}\n`);
  });
  context.io.stderr.write(`Which one? [1-${found.length}] `);
  const { createInterface } = process.getBuiltinModule('node:readline');
  const lines = createInterface({ input: context.io.stdin as NodeJS.ReadableStream });
  for await (const line of lines) {
    lines.close();
    const snapshot = /^\d+$/.test(line.trim()) ? found[Number(line.trim()) - 1] : undefined;
    if (snapshot) return snapshot;
    break;
  }
  throw new CoppiceError('cancelled', 'nothing was chosen, so nothing was restored', {
    hint: 'Type one of the numbers.',
  });
};

const targetOf = async (context: JvsContext, workspace: Workspace): Promise<SnapshotRecord> => {
  const [reference] = context.args.words;
  const tag = context.args.value('latest-tag');
  if (context.args.has('interactive')) return choose(context, workspace, reference);
  if (tag !== undefined && reference === undefined) return workspace.latestTagged(tag);
  if (tag === undefined && reference !== undefined) return workspace.resolve(reference);
  throw new CoppiceError('invalid_argument', 'usage: jvs restore REF | HEAD | --latest-tag TAG', {
    hint: 'Name one snapshot; see `jvs history`.',
  });
};

export const restore: JvsCommand = {
  name: 'restore',
  usage: 'REF | HEAD | --latest-tag TAG [--paths PATH …] [--discard] [--sync] [--interactive]',
  summary: 'make the worktree what a snapshot holds; unsaved changes are kept as a snapshot of their own',
  options: [
    { name: 'latest-tag', kind: 'value', value: 'TAG', help: 'the newest snapshot with this tag' },
    { name: 'paths', kind: 'words', value: 'PATH …', help: 'only these paths' },
    { name: 'discard', kind: 'flag', help: 'do not keep unsaved changes' },
    { name: 'sync', kind: 'flag', help: 'wait until everything restored is on the disk' },
    { name: 'interactive', short: 'i', kind: 'flag', help: 'choose from a list' },
  ],
  least: 0,
  most: 1,
  async run(context) {
    const workspace = await context.open();
    const target = await targetOf(context, workspace);
    const { saved, written, removed, adjusted } = await workspace.restore(target, {
      ...(context.args.has('discard') ? { discard: true } : {}),
      sync: context.args.has('sync'),
      paths: context.args.list('paths'),
      from: context.directory,
    });
    const answer = {
      status: 'restored',
      snapshot_id: target.snapshot_id,
      saved_snapshot_id: saved?.snapshot_id ?? null,
      written,
      removed,
      adjusted,
      warnings: context.warnings,
    };
    context.answer(answer, () => [
      `Restored ${shortId(target.snapshot_id)}${target.note ? ` "${printable(target.note.split('\n')[0] ?? '')}"` : ''}: ${written} written, ${removed} removed, ${adjusted} adjusted`,
    ]);
    return 0;
  },
};
