import { writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import { addTakeOutOptions, type TakeOutFlags, takeOutOf } from '../args/take-out-options.ts';
import { Result } from '../brought-in/result.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options extends TakeOutFlags {
  readonly into?: string;
  readonly patch?: string;
  readonly branch?: string;
  readonly repo?: string;
}

/** The names of the files that a patch is about. */
const filesOf = (patch: Buffer): string[] =>
  [...patch.toString().matchAll(/^diff --git (?:"?a\/.*"? )"?b\/(.*?)"?$/gm)].map(([, name = '']) => name);

export const define: DefineCommand = (program, cli) => {
  addTakeOutOptions(
    verb(program, 'pull', 'Copy back a directory that was copied or cloned in, with its changes')
      .argument('<sandbox>', 'name or id; made with --copy-in or --clone, or grown from one that was')
      .argument('[path]', 'directory inside (default: where it was brought in)')
      .option('--into <dir>', 'apply what changed to a directory of this machine, all of it or nothing')
      .option('--patch <file>', 'write it as a patch for `git apply`; - for standard output')
      .option('--branch <name>', 'make it a branch of a repository of this machine')
      .option('--repo <dir>', 'with --branch: the repository (default: the current directory)'),
  )
    .addHelpText(
      'after',
      examples(
        'coppice pull dev --into .',
        'coppice pull dev --patch change.patch',
        'coppice pull dev --branch from-agent --repo ~/src/app',
      ),
    )
    .action(async (ref: string, path: string | undefined, options: Options) => {
      const ways = [options.into, options.patch, options.branch].filter((way) => way !== undefined);
      if (ways.length !== 1)
        throw new CoppiceError('invalid_argument', 'say how: one of --into, --patch and --branch');
      if (options.repo !== undefined && options.branch === undefined)
        throw new CoppiceError('invalid_argument', '--repo goes with --branch');
      await using result = await Result.of(cli, ref, path, takeOutOf(options));
      const files = filesOf(result.patch);
      const many = files.length === 1 ? '1 file' : `${files.length} files`;
      if (options.patch === '-') {
        if (cli.out.isJson)
          cli.out.result({ path: result.path, files, patch: result.patch.toString() }, () => '');
        else cli.io.stdout.write(result.patch);
        return;
      }
      if (options.patch !== undefined) {
        await writeFile(options.patch, result.patch, { mode: 0o600 });
        cli.out.result(
          { path: result.path, files, patch: resolve(options.patch) },
          () => `${many} in ${options.patch}`,
        );
      } else if (options.into !== undefined) {
        const directory = resolve(options.into);
        if (files.length > 0) await result.applyTo(directory);
        cli.out.result({ path: result.path, files, into: directory }, () =>
          files.length === 0 ? 'nothing has changed' : `${many} changed in ${directory}`,
        );
      } else {
        const repository = resolve(options.repo ?? '.');
        const commit = await result.toBranch(repository, options.branch!);
        cli.out.result(
          { path: result.path, files, branch: options.branch, commit },
          () => `${many} on the branch ${options.branch} (${commit.slice(0, 12)})`,
        );
      }
    });
};
