import { createWriteStream } from 'node:fs';
import { rename, rm, stat } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { formatBytes } from '../ui/format.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

export const define: DefineCommand = (program, cli) => {
  verb(program, 'export', 'Write a snapshot or checkpoint to one file')
    .argument('<snapshot>', 'id, or sandbox:snapshot')
    .argument('<file>', 'where to')
    .option('--no-memory', 'leave the memory of a checkpoint out')
    .addHelpText('after', examples('coppice export dev:baseline baseline.coppice'))
    .action(async (snapshot: string, file: string, { memory }: { readonly memory: boolean }) => {
      const partial = `${file}.${process.pid}.part`;
      const bytes = await cli.out.during(`exporting ${snapshot}`, async (progress) => {
        let done = 0;
        const source = cli.coppice.snapshots.export(snapshot, { memory, signal: cli.signal });
        const counting = async function* () {
          for await (const chunk of source) {
            done += chunk.length;
            progress.update({ done });
            yield chunk;
          }
        };
        try {
          await pipeline(counting(), createWriteStream(partial, { flags: 'wx', mode: 0o600 }));
          await rename(partial, file);
        } catch (error) {
          await rm(partial, { force: true });
          throw error;
        }
        return (await stat(file)).size;
      });
      cli.out.result({ file, bytes }, () => `wrote ${file}, ${formatBytes(bytes)}`);
    });
};
