import { pipeline } from 'node:stream/promises';
import { formatBytes } from '@coppice/console';
import type { Cli } from '../cli.ts';
import { counted, openSource, writeWhole } from '../transfer.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly output?: string;
  readonly memory: boolean;
  readonly image: boolean;
  readonly withEnv?: boolean;
  readonly baseImage?: string;
  readonly for?: string;
}

/** One digest in each line, as `coppice import --have` prints them. */
const readHave = async (cli: Cli, file: string): Promise<string[]> => {
  const { stream } = await openSource(cli, file, 'Name the file that `coppice import --have` wrote.');
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks)
    .toString()
    .split(/\s+/)
    .filter((digest) => digest !== '');
};

interface Written {
  readonly bytes: number;
  /** Whether anything of the image is in the file. */
  readonly image: boolean;
}

const exportTo = async (cli: Cli, snapshot: string, file: string, options: Options): Promise<Written> =>
  cli.out.during(`exporting ${snapshot}`, async (progress) => {
    let held = false;
    const { memory, image, withEnv: env = false, baseImage } = options;
    const source = cli.coppice.snapshots.export(snapshot, {
      memory,
      image,
      env,
      ...(baseImage === undefined ? {} : { base_image: baseImage }),
      have: options.for === undefined ? [] : await readHave(cli, options.for),
      signal: cli.signal,
      onProgress: ({ stage, done_bytes: done, total_bytes: total }) => {
        held ||= stage === 'image';
        progress.update({ done, ...(total === undefined ? {} : { total }), detail: stage });
      },
    });
    let bytes = 0;
    const content = counted(source, (done) => {
      bytes = done;
    });
    if (file === '-') await pipeline(content, cli.io.stdout, { end: false });
    else await writeWhole(file, content);
    return { bytes, image: held };
  });

export const define: DefineCommand = (program, cli) => {
  verb(program, 'export', 'Write a snapshot or checkpoint to one file')
    .argument('<snapshot>', 'id, or sandbox:snapshot')
    .option('-o, --output <file>', 'where to, - for standard output (default: <sandbox>-<snapshot>.coppice)')
    .option('--no-memory', 'leave the memory of a checkpoint out')
    .option('--no-image', 'leave the image out: a small file, for where the same image is already')
    .option('--base-image <image>', 'leave out the layers that this image has: for where that one is already')
    .option('--for <file>', 'leave out what `coppice import --have` listed there, - for standard input')
    .option('--with-env', 'put the values of its environment variables in, which may be secrets')
    .addHelpText(
      'after',
      examples(
        'coppice export dev:baseline -o baseline.coppice',
        'coppice export dev:baseline -o - | ssh there coppice import -',
        'ssh there coppice import --have | coppice export dev:baseline --for - -o next.coppice',
      ),
    )
    .action(async (ref: string, options: Options) => {
      const snapshot = await cli.coppice.snapshots.get(ref, { signal: cli.signal });
      const file = options.output ?? `${snapshot.sandbox_name}-${snapshot.name}.coppice`;
      const { bytes, image } = await exportTo(cli, snapshot.id, file, options);
      if (file === '-') return;
      const memory = snapshot.has_memory && options.memory;
      const held = [...(image ? [`image ${snapshot.image}`] : []), 'files', ...(memory ? ['memory'] : [])];
      const result = { file, bytes, snapshot_id: snapshot.id, image, memory };
      cli.out.result(result, () => `wrote ${file}, ${formatBytes(bytes)}: ${held.join(', ')}`);
    });
};
