import { formatCommand, plural, printableName } from '@coppice/console';
import type { Merged } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import { Option } from 'commander';
import { changeLine } from '../ui/changes.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly prefer?: 'ours' | 'theirs';
  readonly dryRun?: boolean;
}
type Conflicts = Merged['conflicts'];

const conflictLines = (conflicts: Conflicts): string[] =>
  conflicts.map(({ path, ours, theirs }) => `C ${printableName(path)} (here ${ours}, there ${theirs})`);

/** What becomes of the paths that both sides changed; without a side they stop the merge. */
const settled = (conflicts: number, prefer: Options['prefer'], from: string, into: string): string => {
  if (conflicts === 0) return '';
  const count = plural(conflicts, 'conflict');
  if (prefer === undefined) return `; ${count} would stop it`;
  return `; ${count} settled: ${prefer === 'ours' ? `kept as in ${into}` : `taken from ${from}`}`;
};

/** The error of a merge with the paths and the next command, by the names that were typed. */
const withPaths = (error: unknown, from: string, into: string): unknown => {
  if (!(error instanceof CoppiceError) || error.code !== 'conflict') return error;
  const conflicts = (error.details?.conflicts ?? []) as Conflicts;
  const [first] = conflicts;
  return new CoppiceError('conflict', [error.message, ...conflictLines(conflicts)].join('\n'), {
    hint: `Look with \`coppice diff ${into} ${from}${first ? ` ${formatCommand([first.path])}` : ''}\`, then choose a side: \`coppice merge ${from} ${into} --prefer ours\` keeps ${into}, \`--prefer theirs\` takes ${from}.`,
    ...(error.details === undefined ? {} : { details: error.details }),
    cause: error,
  });
};

export const define: DefineCommand = (program, cli) => {
  verb(program, 'merge', 'Bring what changed in a fork into another sandbox; conflicts stop it whole')
    .argument('<from>', 'the fork')
    .argument('<into>', 'the sandbox that gets the changes')
    .addOption(new Option('--prefer <side>', 'who wins where both changed').choices(['ours', 'theirs']))
    .option('--dry-run', 'say what would be written, and write nothing')
    .addHelpText('after', examples('coppice merge try dev --dry-run', 'coppice merge try dev'))
    .action(async (from: string, into: string, { prefer, dryRun }: Options) => {
      const merged = await cli.out
        .during('merging', () =>
          cli.coppice.sandboxes.at(into).merge(from, {
            ...(prefer === undefined ? {} : { prefer }),
            ...(dryRun === undefined ? {} : { dry_run: dryRun }),
            signal: cli.signal,
          }),
        )
        .catch((error: unknown) => {
          throw withPaths(error, from, into);
        });
      cli.out.result(merged, () => {
        const { added, removed, modified, mode } = merged.summary;
        const changes = plural(added + removed + modified + mode, 'change');
        const done = merged.applied
          ? `merged ${changes} of ${from} into ${into}`
          : `${changes} of ${from} would go into ${into}`;
        const undo =
          merged.undo_snapshot_id === null
            ? []
            : [`undo: coppice restore ${into} ${merged.undo_snapshot_id}`];
        return [
          ...merged.changes.map(changeLine),
          ...conflictLines(merged.conflicts),
          ...(merged.truncated ? ['… and more'] : []),
          done + settled(merged.conflict_count, prefer, from, into),
          ...undo,
        ].join('\n');
      });
    });
};
