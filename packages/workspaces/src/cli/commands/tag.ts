import { printable } from '@coppice/console';
import { type SnapshotRecord, shortId, type Workspace } from '../../index.ts';
import type { JvsCommand } from '../command.ts';
import type { JvsContext } from '../jvs-context.ts';

type Change = (
  workspace: Workspace,
  snapshot: SnapshotRecord,
  tags: readonly string[],
) => Promise<readonly string[]>;

const change = async (context: JvsContext, apply: Change): Promise<number> => {
  const [reference = '', ...words] = context.args.words;
  const workspace = await context.open();
  const snapshot = workspace.resolve(reference);
  const tags = await apply(
    workspace,
    snapshot,
    words.flatMap((word) => word.split(',').filter(Boolean)),
  );
  const id = snapshot.snapshot_id;
  context.answer({ snapshot_id: id, tags }, () => [
    `${shortId(id)} ${tags.map((tag) => `[${printable(tag)}]`).join(' ')}`.trimEnd(),
  ]);
  return 0;
};

export const tag: JvsCommand = {
  name: 'tag',
  usage: 'REF TAG …',
  summary: 'give a snapshot more tags',
  options: [],
  least: 2,
  most: 64,
  run: (context) => change(context, (workspace, snapshot, tags) => workspace.tag(snapshot, tags)),
};

export const untag: JvsCommand = {
  name: 'untag',
  usage: 'REF TAG …',
  summary: 'take tags from a snapshot',
  options: [],
  least: 2,
  most: 64,
  run: (context) => change(context, (workspace, snapshot, tags) => workspace.untag(snapshot, tags)),
};
