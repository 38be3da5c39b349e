import { text as textOf } from 'node:stream/consumers';
import { formatAge, formatBytes, plural, printableName } from '@coppice/console';
import { CoppiceError } from '@coppice/protocol/errors';
import { parseWhole } from '../args/number.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface SearchOptions {
  readonly regex?: boolean;
  readonly tag?: string;
  readonly folder?: string;
  readonly limit?: number;
}

export const define: DefineCommand = (program, cli) => {
  const notes = verb(program, 'notes', 'Read and write the notes that agents share');

  verb(notes, 'ls', 'List notes')
    .argument('[folder]', 'only in this folder')
    .option('-r, --recursive', 'with all folders below')
    .action(async (folder: string | undefined, { recursive = false }: { readonly recursive?: boolean }) => {
      const entries = await cli.coppice.notes.list({
        ...(folder === undefined ? {} : { folder }),
        recursive,
        signal: cli.signal,
      });
      const rows = entries.map(({ path, is_dir: isFolder, size, modified }) => [
        printableName(isFolder ? `${path}/` : path),
        isFolder ? '' : formatBytes(size),
        formatAge(modified, Date.now()),
      ]);
      cli.out.result(entries, () => cli.out.table(['NOTE', 'SIZE', 'CHANGED'], rows, 'No notes.'));
    });

  verb(notes, 'show', 'Print a note')
    .argument('<note>', 'such as plans/today.md')
    .action(async (path: string) => {
      const note = await cli.coppice.notes.read(path, { signal: cli.signal });
      if (cli.out.isJson) cli.out.result(note, () => '');
      else cli.io.stdout.write(note.content);
    });

  verb(notes, 'write', 'Write standard input to a note')
    .argument('<note>', 'such as plans/today.md')
    .option('-a, --append', 'add it at the end')
    .addHelpText('after', examples('echo "Use tabs." | coppice notes write style.md'))
    .action(async (path: string, { append }: { readonly append?: boolean }) => {
      const content = await textOf(cli.io.stdin);
      const written = await cli.coppice.notes.write(path, content, {
        mode: append ? 'append' : 'overwrite',
        signal: cli.signal,
      });
      cli.out.result(written, () => `wrote ${written.path} (${formatBytes(written.bytes)})`);
    });

  verb(notes, 'search', 'Search notes')
    .argument('<words>', 'what a line holds, in any case of its letters')
    .option('-E, --regex', 'a regular expression')
    .option('--tag <tag>', 'only notes with this tag')
    .option('--folder <folder>', 'only in this folder and below')
    .option('--limit <number>', 'at most as many lines (default: 20)', parseWhole)
    .action(async (words: string, options: SearchOptions) => {
      const found = await cli.coppice.notes.search(words, { ...options, signal: cli.signal });
      cli.out.result(found, () =>
        [
          ...found.results.map(({ path, line_number: line, line: text }) =>
            printableName(`${path}:${line}: ${text}`),
          ),
          ...(found.truncated ? ['… and more; raise --limit'] : []),
          ...(found.results.length === 0 ? ['No note has it.'] : []),
        ].join('\n'),
      );
    });

  verb(notes, 'tag', 'Show the tags of a note or of all notes, add and remove tags')
    .argument('[note]', 'such as plans/today.md')
    .option('--add <tags...>', 'add these')
    .option('--remove <tags...>', 'remove these')
    .action(
      async (
        path: string | undefined,
        { add, remove }: { readonly add?: string[]; readonly remove?: string[] },
      ) => {
        const { signal } = cli;
        const isChange = (add ?? remove) !== undefined;
        if (isChange && path === undefined)
          throw new CoppiceError('invalid_argument', 'to add or remove tags, name the note', {
            hint: 'For example: coppice notes tag plans/today.md --add urgent',
          });
        const tags = isChange
          ? (
              await cli.coppice.notes.changeFrontmatter(path!, {
                add_tags: add ?? [],
                remove_tags: remove ?? [],
                signal,
              })
            ).tags
          : await cli.coppice.notes.tags(path, { signal });
        cli.out.result({ note: path ?? null, tags }, () => tags.join('\n'));
      },
    );

  verb(notes, 'mv', 'Move a note')
    .argument('<from>')
    .argument('<to>')
    .option('-f, --force', 'also where there is a note already')
    .action(async (from: string, to: string, { force = false }: { readonly force?: boolean }) => {
      await cli.coppice.notes.move(from, to, { overwrite: force, signal: cli.signal });
      cli.out.result({ from, to }, () => `moved ${from} to ${to}`);
    });

  verb(notes, 'rm', 'Delete notes')
    .argument('<notes...>')
    .action(async (paths: string[]) => {
      for (const path of paths) await cli.coppice.notes.delete(path, { signal: cli.signal });
      cli.out.result({ deleted: paths }, () => `deleted ${plural(paths.length, 'note')}`);
    });
};
