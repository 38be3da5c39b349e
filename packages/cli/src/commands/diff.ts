import { printable, printableName } from '@coppice/console';
import { parseWhole } from '../args/number.ts';
import { changeLine, changeSummary } from '../ui/changes.ts';
import { noteLeftOut } from '../ui/left-out.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly stat?: boolean;
  readonly limit?: number;
}

export const define: DefineCommand = (program, cli) => {
  verb(program, 'diff', 'Show which files differ between two states, or how one file does')
    .argument('<from>', 'sandbox as it is now, or snapshot by id or as sandbox:snapshot')
    .argument('<to>', 'the same')
    .argument('[path]', 'only this: the unified diff of a file, or what differs below a directory')
    .option('--stat', 'only the counts')
    .option('--limit <number>', 'at most this many files', parseWhole)
    .addHelpText(
      'after',
      examples(
        'coppice diff dev:baseline dev',
        'coppice diff dev try /workspace/app.conf',
        'coppice diff dev try /etc',
      ),
    )
    .action(async (from: string, to: string, path: string | undefined, options: Options) => {
      const { signal } = cli;
      const listed = options.stat || options.limit !== undefined;
      const text =
        path === undefined || listed ? undefined : await cli.coppice.diffFile(from, to, path, { signal });
      if (text !== undefined && !text.directory) {
        cli.out.result(text, () => {
          if (text.binary) return `${printableName(text.path)} differs and is not text`;
          // For other programs as it is; on a terminal the file could otherwise hide its own lines.
          const shown = cli.io.stdout.isTTY ? printable(text.unified) : text.unified;
          return shown.trimEnd() + (text.truncated ? '\n… it is too large to be shown' : '');
        });
        return;
      }
      const asked = {
        ...(options.limit === undefined ? {} : { limit: options.limit }),
        ...(path === undefined ? {} : { path }),
      };
      const diff = await cli.out.during('comparing', () => cli.coppice.diff(from, to, { ...asked, signal }));
      noteLeftOut(cli, diff.left_out);
      const summary = changeSummary(diff.summary);
      cli.out.result(diff, () => {
        if (options.stat || diff.changes.length === 0) return summary;
        const cut = diff.truncated ? ['… more files differ: raise --limit'] : [];
        return [...diff.changes.map(changeLine), ...cut, summary].join('\n');
      });
    });
};
