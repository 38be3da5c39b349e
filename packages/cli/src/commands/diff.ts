import { printable, printableName } from '@coppice/console';
import type { Patch } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import { collect } from '../args/key-value.ts';
import { parseWhole } from '../args/number.ts';
import { changeLines, changeSummary, paintedPatch } from '../ui/changes.ts';
import { noteLeftOut } from '../ui/left-out.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly stat?: boolean;
  readonly all?: boolean;
  readonly limit?: number;
  readonly patch?: boolean;
  readonly exclude?: string[];
}

const reasons: Readonly<Record<Patch['missing'][number]['reason'], string>> = {
  binary: 'is not text',
  too_large: 'is too large',
  mode: 'has another mode or owner, which git does not keep',
  kind: 'is neither a file nor a link',
  name: 'has a name that is not UTF-8',
};

export const define: DefineCommand = (program, cli) => {
  /** For other programs as it is; on a terminal a file could otherwise hide its own lines. */
  const shown = (text: string): string =>
    (cli.io.stdout.isTTY ? paintedPatch(printable(text), cli.out) : text).trimEnd();

  verb(program, 'diff', 'Show which files differ between two states, or how one file does')
    .argument('<from>', 'sandbox as it is now, or snapshot by id or as sandbox:snapshot')
    .argument('<to>', 'the same')
    .argument('[paths...]', 'only these: the unified diff of a file, or what differs below directories')
    .option(
      '--exclude <path>',
      'not this: a path, or a name such as node_modules or *.log (repeatable)',
      collect,
    )
    .option('--patch', 'all of it as one patch for git apply')
    .option('--stat', 'only the counts')
    .option('-a, --all', 'on a terminal every path, also where there are very many')
    .option('--limit <number>', 'at most this many files', parseWhole)
    .addHelpText(
      'after',
      examples(
        'coppice diff dev:baseline dev',
        'coppice diff dev try /workspace/app.conf',
        'coppice diff dev try /etc',
        "coppice diff dev try --exclude node_modules --exclude '*.log'",
        'coppice diff dev try /workspace --patch | git apply',
      ),
    )
    .action(async (from: string, to: string, paths: string[], options: Options) => {
      const { signal } = cli;
      const { stat, limit, exclude } = options;
      if (options.patch && (stat || limit !== undefined))
        throw new CoppiceError('invalid_argument', '--patch is whole: it takes neither --stat nor --limit');
      const asked = {
        ...(paths.length === 0 ? {} : { path: paths }),
        ...(exclude === undefined ? {} : { exclude }),
        signal,
      };
      if (options.patch) {
        const made = await cli.out.during('comparing', () => cli.coppice.patch(from, to, asked));
        noteLeftOut(cli, made.left_out);
        for (const { path, reason } of made.missing)
          cli.out.note(`${printableName(path)} ${reasons[reason]}: it is not in the patch`);
        cli.out.result(made, () => shown(made.patch));
        return;
      }
      const isOne = paths.length === 1 && exclude === undefined && !stat && limit === undefined;
      const text = isOne ? await cli.coppice.diffFile(from, to, paths[0]!, { signal }) : undefined;
      if (text !== undefined && !text.directory) {
        cli.out.result(text, () => {
          if (text.binary) return `${printableName(text.path)} differs and is not text`;
          return shown(text.unified) + (text.truncated ? '\n… it is too large to be shown' : '');
        });
        return;
      }
      const limited = limit === undefined ? asked : { ...asked, limit };
      const diff = await cli.out.during('comparing', () => cli.coppice.diff(from, to, limited));
      noteLeftOut(cli, diff.left_out);
      const summary = changeSummary(diff.summary);
      cli.out.result(diff, () => {
        if (stat || diff.changes.length === 0) return summary;
        const cut = diff.truncated ? ['… more files differ: raise --limit'] : [];
        return [...changeLines(diff.changes, cli.out, options.all), ...cut, summary].join('\n');
      });
    });
};
