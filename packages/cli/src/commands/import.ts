import { CoppiceError } from '@coppice/protocol/errors';
import { counted, openSource } from '../transfer.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly name?: string;
  readonly diskOnly?: boolean;
  readonly have?: boolean;
}

export const define: DefineCommand = (program, cli) => {
  verb(program, 'import', 'Import a snapshot or checkpoint that export wrote')
    .argument('[file]', 'the file, - for standard input')
    .option('--have', 'list what a file for this machine need not carry, for `coppice export --for`')
    .option('--name <name>', 'name of the snapshot (default: the one that it had)')
    .option('--disk-only', 'take the files alone, where the memory does not fit this machine')
    .addHelpText('after', examples('coppice import baseline.coppice', 'coppice create --from sn_…'))
    .action(async (file: string | undefined, { name, diskOnly = false, have = false }: Options) => {
      if (have !== (file === undefined) || (have && (name !== undefined || diskOnly)))
        throw new CoppiceError('invalid_argument', 'import takes a file, or --have alone', {
          hint: 'See `coppice import --help`.',
        });
      if (file === undefined) {
        const digests = await cli.coppice.snapshots.importContents({ signal: cli.signal });
        cli.out.result({ have: digests }, () => digests.join('\n'));
        return;
      }
      const { stream, sizeBytes } = await openSource(
        cli,
        file,
        'Name the file that `coppice export` wrote, or - for standard input.',
      );
      const imported = await cli.out.during(`importing ${file}`, (progress) =>
        cli.coppice.snapshots.import(
          counted(stream, (done) =>
            progress.update({ done, ...(sizeBytes === undefined ? {} : { total: sizeBytes }) }),
          ),
          {
            ...(name === undefined ? {} : { name }),
            ...(sizeBytes === undefined ? {} : { size_bytes: sizeBytes }),
            disk_only: diskOnly,
            signal: cli.signal,
          },
        ),
      );
      cli.out.result(imported, () =>
        [
          `${imported.name}  ${imported.id}  ${imported.has_memory ? 'with memory' : 'files alone'}`,
          ...(imported.image_added ? [`added the image ${imported.image}`] : []),
          ...(imported.memory_left_out ? ['its memory was left out'] : []),
          ...(imported.missing_env.length > 0
            ? [`not in the file: the values of ${imported.missing_env.join(', ')}; give them with --env`]
            : []),
          ...(imported.host_ports_left_out.length > 0
            ? [
                `not allowed here: ports of the machine (${imported.host_ports_left_out.join(', ')}); see \`coppice net --help\``,
              ]
            : []),
        ].join('\n'),
      );
    });
};
