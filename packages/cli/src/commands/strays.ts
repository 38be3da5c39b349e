import { CoppiceError } from '@coppice/protocol/errors';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly keep?: string;
  readonly image?: string;
  readonly name?: string;
  readonly delete?: string;
}

export const define: DefineCommand = (program, cli) => {
  verb(
    program,
    'strays',
    'List what was set aside because the database did not know it, bring it back or delete it',
  )
    .option('--keep <id>', 'make a snapshot of its files')
    .option('--image <image>', 'with --keep: the image that its sandbox stood on, if not the default one')
    .option('--name <name>', 'with --keep: of the snapshot')
    .option('--delete <id>', 'delete it')
    .addHelpText(
      'after',
      examples('coppice strays', 'coppice strays --keep sb_01h… --image python --name rescued'),
    )
    .action(async ({ keep, image, name, delete: doomed }: Options) => {
      const { signal } = cli;
      if (keep === undefined && (image !== undefined || name !== undefined))
        throw new CoppiceError('invalid_argument', '--image and --name say something with --keep only');
      if (keep !== undefined && doomed !== undefined)
        throw new CoppiceError('invalid_argument', '--keep and --delete exclude each other');
      if (keep !== undefined) {
        const snapshot = await cli.coppice.strays.keep(keep, { image, name, signal });
        cli.out.result(
          snapshot,
          () => `${snapshot.name}  ${snapshot.id}\nA sandbox from it: coppice fork ${snapshot.id}`,
        );
      } else if (doomed !== undefined) {
        await cli.coppice.strays.delete(doomed, { signal });
        cli.out.result({ deleted: doomed }, () => `deleted ${doomed}`);
      } else {
        const strays = await cli.coppice.strays.list({ signal });
        const rows = strays.map(({ id, kind, created_at: at }) => [id, kind, at]);
        cli.out.result(strays, () => cli.out.table(['ID', 'WAS', 'MADE'], rows, 'Nothing was set aside.'));
      }
    });
};
