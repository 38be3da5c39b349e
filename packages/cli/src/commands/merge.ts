import { formatCommand, plural, printableName } from '@coppice/console';
import type { Merged } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import { Option } from 'commander';
import { collect } from '../args/key-value.ts';
import { changeLines } from '../ui/changes.ts';
import { noteLeftOut } from '../ui/left-out.ts';
import type { Look } from '../ui/table.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

type Side = 'ours' | 'theirs';
type Choices = Readonly<Record<string, Side>>;

interface Options {
  readonly prefer?: Side;
  readonly choose?: Choices;
  readonly path?: string[];
  readonly exclude?: string[];
  readonly dryRun?: boolean;
  readonly all?: boolean;
}
type Conflicts = Merged['conflicts'];

/** An error is painted by whoever shows it. */
const plain = { paint: (_style: string, text: string): string => text };

const collectChoice = (text: string, before: Choices = {}): Choices => {
  const equals = text.lastIndexOf('=');
  const side = text.slice(equals + 1);
  if (equals < 1 || (side !== 'ours' && side !== 'theirs'))
    throw new CoppiceError('invalid_argument', `${JSON.stringify(text)} is not PATH=ours or PATH=theirs`);
  return { ...before, [text.slice(0, equals)]: side };
};

const conflictLines = (conflicts: Conflicts, { paint }: Pick<Look, 'paint'>): string[] =>
  conflicts.map(
    ({ path, ours, theirs }) => `${paint('red', 'C')} ${printableName(path)} (here ${ours}, there ${theirs})`,
  );

/** What becomes of the paths that both sides changed; without a side they stop the merge. */
const settled = (
  { conflict_count: total, conflicts }: Merged,
  { prefer, choose = {} }: Options,
  from: string,
  into: string,
): string => {
  if (total === 0) return '';
  const count = plural(total, 'conflict');
  const sides = new Set(conflicts.map(({ path }) => choose[path] ?? prefer));
  if (sides.has(undefined)) return `; ${count} would stop it`;
  if (sides.size > 1) return `; ${count} settled as chosen`;
  return `; ${count} settled: ${sides.has('ours') ? `kept as in ${into}` : `taken from ${from}`}`;
};

/** The error of a merge with the paths and the next command, by the names that were typed. */
const withPaths = (error: unknown, from: string, into: string): unknown => {
  if (!(error instanceof CoppiceError) || error.code !== 'conflict') return error;
  const conflicts = (error.details?.conflicts ?? []) as Conflicts;
  const [first] = conflicts;
  return new CoppiceError('conflict', [error.message, ...conflictLines(conflicts, plain)].join('\n'), {
    hint: `Look with \`coppice diff ${into} ${from}${first ? ` ${formatCommand([first.path])}` : ''}\`, then choose a side: \`coppice merge ${from} ${into} --prefer ours\` keeps ${into}, \`--prefer theirs\` takes ${from}, \`--choose PATH=SIDE\` settles one path.`,
    ...(error.details === undefined ? {} : { details: error.details }),
    cause: error,
  });
};

export const define: DefineCommand = (program, cli) => {
  verb(program, 'merge', 'Merge the changes of a fork into another sandbox; on conflicts nothing is changed')
    .argument('<from>', 'the fork')
    .argument('<into>', 'the sandbox that gets the changes')
    .addOption(new Option('--prefer <side>', 'who wins where both changed').choices(['ours', 'theirs']))
    .option('--choose <path=side>', 'who wins for this path: ours or theirs (repeatable)', collectChoice)
    .option('--path <path>', 'only this and what is below (repeatable)', collect)
    .option(
      '--exclude <path>',
      'not this: a path, or a name such as node_modules or *.log (repeatable)',
      collect,
    )
    .option('-a, --all', 'on a terminal every path, also where there are very many')
    .option('--dry-run', 'say what would be written, and write nothing')
    .addHelpText(
      'after',
      examples(
        'coppice merge try dev --dry-run',
        'coppice merge try dev',
        'coppice merge try dev --choose /workspace/app.conf=theirs',
        'coppice merge try dev --path /workspace --exclude node_modules',
      ),
    )
    .action(async (from: string, into: string, options: Options) => {
      const { prefer, choose, path, exclude, dryRun } = options;
      const merged = await cli.out
        .during('merging', () =>
          cli.coppice.sandboxes.at(into).merge(from, {
            ...(prefer === undefined ? {} : { prefer }),
            ...(choose === undefined ? {} : { choose }),
            ...(path === undefined ? {} : { path }),
            ...(exclude === undefined ? {} : { exclude }),
            ...(dryRun === undefined ? {} : { dry_run: dryRun }),
            signal: cli.signal,
          }),
        )
        .catch((error: unknown) => {
          throw withPaths(error, from, into);
        });
      noteLeftOut(cli, merged.left_out);
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
          ...changeLines(merged.changes, cli.out, options.all),
          ...conflictLines(merged.conflicts, cli.out),
          ...(merged.truncated ? ['… and more'] : []),
          ...merged.repositories.map(
            ({ path: place, commits }) => `${printableName(place)}: ${plural(commits, 'commit')} by git`,
          ),
          done + settled(merged, options, from, into),
          ...undo,
        ].join('\n');
      });
    });
};
