import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly name?: string;
  readonly diskOnly?: boolean;
}

export const define: DefineCommand = (program, cli) => {
  verb(program, 'import', 'Take in a snapshot or checkpoint that export wrote')
    .argument('<file>', 'the file')
    .option('--name <name>', 'name of the snapshot')
    .option('--disk-only', 'take the files where the memory does not fit this machine')
    .addHelpText('after', examples('coppice import baseline.coppice', 'coppice create --from sn_…'))
    .action(async (file: string, { name, diskOnly = false }: Options) => {
      const { size } = await stat(file);
      const snapshot = await cli.out.during(`importing ${file}`, (progress) => {
        let done = 0;
        const content = createReadStream(file).on('data', (chunk) => {
          done += chunk.length;
          progress.update({ done, total: size });
        });
        return cli.coppice.snapshots.import(content, {
          ...(name === undefined ? {} : { name }),
          diskOnly,
          sizeBytes: size,
          signal: cli.signal,
        });
      });
      cli.out.result(snapshot, () => `${snapshot.name}  ${snapshot.id}`);
    });
};
