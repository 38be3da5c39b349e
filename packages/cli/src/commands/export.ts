import { pipeline } from 'node:stream/promises';
import { formatBytes } from '@coppice/console';
import type { Cli } from '../cli.ts';
import { counted, writeWhole } from '../transfer.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly output?: string;
  readonly memory: boolean;
  readonly image: boolean;
  readonly withEnv?: boolean;
}

const exportTo = async (cli: Cli, snapshot: string, file: string, options: Options): Promise<number> =>
  cli.out.during(`exporting ${snapshot}`, async (progress) => {
    const { memory, image, withEnv: env = false } = options;
    const source = cli.coppice.snapshots.export(snapshot, { memory, image, env, signal: cli.signal });
    let bytes = 0;
    const content = counted(source, (done) => {
      bytes = done;
      progress.update({ done });
    });
    if (file === '-') await pipeline(content, cli.io.stdout, { end: false });
    else await writeWhole(file, content);
    return bytes;
  });

export const define: DefineCommand = (program, cli) => {
  verb(program, 'export', 'Write a snapshot or checkpoint to one file')
    .argument('<snapshot>', 'id, or sandbox:snapshot')
    .option('-o, --output <file>', 'where to, - for standard output (default: <sandbox>-<snapshot>.coppice)')
    .option('--no-memory', 'leave the memory of a checkpoint out')
    .option('--no-image', 'leave the image out: a small file, for where the same image is already')
    .option('--with-env', 'put the values of its environment variables in, which may be secrets')
    .addHelpText(
      'after',
      examples(
        'coppice export dev:baseline -o baseline.coppice',
        'coppice export dev:baseline -o - | ssh there coppice import -',
      ),
    )
    .action(async (ref: string, options: Options) => {
      const snapshot = await cli.coppice.snapshots.get(ref, { signal: cli.signal });
      const file = options.output ?? `${snapshot.sandbox_name}-${snapshot.name}.coppice`;
      const bytes = await exportTo(cli, snapshot.id, file, options);
      if (file === '-') return;
      const memory = snapshot.has_memory && options.memory;
      const held = [
        ...(options.image ? [`image ${snapshot.image}`] : []),
        'files',
        ...(memory ? ['memory'] : []),
      ];
      const result = { file, bytes, snapshot_id: snapshot.id, image: options.image, memory };
      cli.out.result(result, () => `wrote ${file}, ${formatBytes(bytes)}: ${held.join(', ')}`);
    });
};
