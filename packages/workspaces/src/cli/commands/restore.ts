import { resolve } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import { type SnapshotRecord, shortId, type Workspace } from '../../index.ts';
import type { JvsCommand } from '../command.ts';
import type { JvsContext } from '../jvs-context.ts';
import { answerRestored } from '../restored.ts';
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

const exportTo = async (
  context: JvsContext,
  workspace: Workspace,
  target: SnapshotRecord,
  to: string,
): Promise<number> => {
  for (const other of ['discard', 'sync', 'no-sync'])
    if (context.args.has(other))
      throw new CoppiceError('invalid_argument', `--${other} is about the worktree, which --to leaves alone`);
  const directory = resolve(context.directory, to);
  await workspace.export(target, directory, {
    paths: context.args.list('paths'),
    from: context.directory,
  });
  const answer = {
    status: 'exported',
    snapshot_id: target.snapshot_id,
    directory,
    warnings: context.warnings,
  };
  context.answer(answer, () => [`${shortId(target.snapshot_id)} is in ${directory}`]);
  return 0;
};

export const restore: JvsCommand = {
  name: 'restore',
  usage: 'REF | HEAD | --latest-tag TAG [--paths PATH …] [--discard] [--no-sync] [--interactive] [--to DIR]',
  summary: 'bring the worktree back to a snapshot; unsaved changes are kept as another snapshot first',
  options: [
    { name: 'latest-tag', kind: 'value', value: 'TAG', help: 'the newest snapshot with this tag' },
    { name: 'paths', kind: 'words', value: 'PATH …', help: 'only these paths' },
    { name: 'discard', kind: 'flag', help: 'do not keep unsaved changes' },
    { name: 'no-sync', kind: 'flag', help: 'do not wait until everything restored is on the disk' },
    { name: 'sync', kind: 'flag', help: 'wait until everything restored is on the disk (the default)' },
    { name: 'to', kind: 'value', value: 'DIR', help: 'into this new directory; the worktree stays as it is' },
    { name: 'interactive', short: 'i', kind: 'flag', help: 'choose from a list' },
  ],
  least: 0,
  most: 1,
  async run(context) {
    const workspace = await context.open();
    const target = await targetOf(context, workspace);
    if (context.args.has('sync') && context.args.has('no-sync'))
      throw new CoppiceError('invalid_argument', "--sync and --no-sync are each other's opposite");
    const to = context.args.value('to');
    if (to !== undefined) return exportTo(context, workspace, target, to);
    const outcome = await workspace.restore(target, {
      ...(context.args.has('discard') ? { discard: true } : {}),
      sync: !context.args.has('no-sync'),
      paths: context.args.list('paths'),
      from: context.directory,
    });
    answerRestored(context, target, outcome);
    return 0;
  },
};
