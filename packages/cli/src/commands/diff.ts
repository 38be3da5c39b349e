import { CoppiceError } from '@coppice/protocol/errors';
import { parseWhole } from '../args/number.ts';
import { changeLine, changeSummary } from '../ui/changes.ts';
import { printable, printableName } from '../ui/format.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly stat?: boolean;
  readonly limit?: number;
}

export const define: DefineCommand = (program, cli) => {
  verb(program, 'diff', 'Show which files differ between two states, or how one file does')
    .argument('<from>', 'sandbox as it is now, or snapshot by id or as sandbox:snapshot')
    .argument('<to>', 'the same')
    .argument('[path]', 'show the unified diff of this file')
    .option('--stat', 'only the counts')
    .option('--limit <number>', 'at most this many files', parseWhole)
    .addHelpText(
      'after',
      examples('coppice diff dev:baseline dev', 'coppice diff dev try /workspace/app.conf'),
    )
    .action(async (from: string, to: string, path: string | undefined, options: Options) => {
      const { signal } = cli;
      if (path !== undefined) {
        if (options.stat || options.limit !== undefined) {
          throw new CoppiceError('invalid_argument', '--stat and --limit do not go with a path');
        }
        const diff = await cli.coppice.diffFile(from, to, path, { signal });
        cli.out.result(diff, () => {
          if (diff.binary) return `${printableName(path)} differs and is not text`;
          // For other programs as it is; on a terminal the file could otherwise hide its own lines.
          const shown = cli.io.stdout.isTTY ? printable(diff.unified) : diff.unified;
          return shown.trimEnd() + (diff.truncated ? '\n… the rest is cut' : '');
        });
        return;
      }
      const limit = options.limit === undefined ? {} : { limit: options.limit };
      const diff = await cli.out.during('comparing', () => cli.coppice.diff(from, to, { ...limit, signal }));
      const summary = changeSummary(diff.summary);
      cli.out.result(diff, () => {
        if (options.stat || diff.changes.length === 0) return summary;
        const cut = diff.truncated ? ['… more files differ: raise --limit'] : [];
        return [...diff.changes.map(changeLine), ...cut, summary].join('\n');
      });
    });
};
