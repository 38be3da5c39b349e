import type { EntryChange } from '../../index.ts';
import { changeLine } from '../change-lines.ts';
import type { JvsCommand } from '../command.ts';
import { sizeText } from '../snapshot-lines.ts';

const entry = (change: EntryChange) => ({
  path: change.path,
  type: change.type,
  mode: change.modeAfter ?? change.modeBefore,
  old_mode: change.modeBefore,
  size: change.sizeAfter,
  old_size: change.sizeBefore,
  old_hash: change.hashBefore,
  new_hash: change.hashAfter,
  is_symlink: change.type === 'l',
});

export const diff: JvsCommand = {
  name: 'diff',
  usage: '[FROM] [TO] [--stat | --patch]',
  summary: 'show what differs between two snapshots; without TO, between FROM (or HEAD) and the worktree',
  options: [
    { name: 'stat', kind: 'flag', help: 'only the totals' },
    {
      name: 'patch',
      short: 'p',
      kind: 'flag',
      help: 'the lines of text files that differ, as a unified diff',
    },
  ],
  least: 0,
  most: 2,
  async run(context) {
    const workspace = await context.open();
    const [from = 'HEAD', to] = context.args.words;
    const before = workspace.resolve(from);
    const after = to === undefined ? null : workspace.resolve(to);
    const changes = await workspace.diff(before, after);
    if (context.args.has('patch')) {
      const { writePatch } = await import('../patch.ts');
      return writePatch(context, workspace, changes, before, after);
    }
    const of = (kind: EntryChange['change']) => changes.filter(({ change }) => change === kind);
    const grown = changes.reduce(
      (sum, { sizeBefore, sizeAfter }) => sum + (sizeAfter ?? 0) - (sizeBefore ?? 0),
      0,
    );
    const totals = {
      total_added: of('added').length,
      total_removed: of('removed').length,
      total_modified: of('modified').length,
      total_metadata: of('metadata').length,
      size_change: grown,
    };
    const about = {
      from_snapshot_id: before.snapshot_id,
      to_snapshot_id: after?.snapshot_id ?? null,
      from_time: before.created_at,
      to_time: after?.created_at ?? null,
    };
    const lists = {
      added: of('added').map(entry),
      removed: of('removed').map(entry),
      modified: of('modified').map(entry),
      metadata: of('metadata').map(entry),
    };
    const stat = `${totals.total_added} added, ${totals.total_removed} removed, ${totals.total_modified} modified, ${totals.total_metadata} with other metadata; ${grown < 0 ? '-' : '+'}${sizeText(Math.abs(grown))}`;
    context.answer(
      context.args.has('stat') ? { ...about, ...totals } : { ...about, ...lists, ...totals },
      () => (context.args.has('stat') ? [stat] : changes.map(changeLine)),
    );
    return 0;
  },
};
