import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import type { Sandbox } from '@coppice/sdk';
import { parsePlace } from '../args/place.ts';
import type { Cli } from '../cli.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly old?: string;
  readonly new?: string;
  readonly all?: boolean;
}

const editorOf = (env: NodeJS.ProcessEnv): string => env.VISUAL || env.EDITOR || 'vi';

/** Opens the file in the editor of this machine and writes it back when it changed. */
const editByHand = async (cli: Cli, sandbox: Sandbox, path: string): Promise<boolean> => {
  const before = await sandbox.files.read(path, { signal: cli.signal });
  const directory = await mkdtemp(join(tmpdir(), 'coppice-edit-'));
  const file = join(directory, basename(path));
  try {
    await writeFile(file, before, { mode: 0o600 });
    // The variable may hold options, as in `code --wait`.
    const editor = spawn('sh', ['-c', `${editorOf(cli.io.env)} "$1"`, 'sh', file], { stdio: 'inherit' });
    const [code] = (await once(editor, 'exit')) as [number | null];
    if (code !== 0) {
      throw new CoppiceError(
        'cancelled',
        `the editor ended with ${code ?? 'a signal'}; nothing was written`,
        {
          hint: 'Set EDITOR to an editor that is installed.',
        },
      );
    }
    const after = await readFile(file);
    if (after.equals(before)) return false;
    await sandbox.files.write(path, after, { signal: cli.signal });
    return true;
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
};

export const define: DefineCommand = (program, cli) => {
  verb(program, 'edit', 'Edit a file in a sandbox: replace an exact text, or open it in $EDITOR')
    .argument('<sandbox:path>', 'the file')
    .option('--old <text>', 'text to replace; it must be there exactly once')
    .option('--new <text>', 'what to put in its place')
    .option('--all', 'replace it wherever it is')
    .addHelpText('after', examples("coppice edit dev:/workspace/app.conf --old 'a = 1' --new 'a = 2'"))
    .action(async (where: string, options: Options) => {
      const place = parsePlace(where);
      if (place.kind !== 'sandbox') {
        throw new CoppiceError('invalid_argument', `${where} is not in a sandbox`, {
          hint: 'Write it as name:/path.',
        });
      }
      const sandbox = cli.coppice.sandboxes.at(place.sandbox);
      if ((options.old === undefined) !== (options.new === undefined)) {
        throw new CoppiceError('invalid_argument', '--old and --new belong together', {
          hint: 'Give both, or neither to open the file in an editor.',
        });
      }
      if (options.old !== undefined && options.new !== undefined) {
        const edited = await sandbox.files.edit(place.path, options.old, options.new, {
          replace_all: options.all === true,
          signal: cli.signal,
        });
        cli.out.result(edited, () => `replaced ${edited.replacements} in ${edited.path}`);
        return;
      }
      const changed = await editByHand(cli, sandbox, place.path);
      cli.out.result({ path: place.path, changed }, () =>
        changed ? `wrote ${place.path}` : 'nothing changed',
      );
    });
};
