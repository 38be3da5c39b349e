import { pipeline } from 'node:stream/promises';
import { formatBytes } from '@coppice/console';
import { CoppiceError } from '@coppice/protocol/errors';
import { parsePlace } from '../args/place.ts';
import { addTakeOutOptions, assertNotGiven, type TakeOutFlags, takeOutOf } from '../args/take-out-options.ts';
import type { Cli } from '../cli.ts';
import { copyBetween, download, upload } from '../transfer.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

const copy = async (
  cli: Cli,
  from: string,
  to: string,
  flags: TakeOutFlags,
): Promise<{ files: number; bytes: number } | undefined> => {
  const [source, target] = [parsePlace(from), parsePlace(to)];
  const sandboxes = cli.coppice.sandboxes;
  if (target.kind === 'sandbox') assertNotGiven(flags);
  if (source.kind === 'sandbox' && target.kind === 'sandbox') {
    return copyBetween(
      cli,
      { sandbox: sandboxes.at(source.sandbox), path: source.path },
      { sandbox: sandboxes.at(target.sandbox), path: target.path },
    );
  }
  if (source.kind === 'host' && target.kind === 'sandbox') {
    return upload(cli, source.path, sandboxes.at(target.sandbox), target.path);
  }
  if (source.kind === 'sandbox' && target.kind === 'host') {
    return download(cli, sandboxes.at(source.sandbox), source.path, target.path, takeOutOf(flags));
  }
  if (source.kind === 'pipe' && target.kind === 'sandbox') {
    const { signal } = cli;
    const { bytes } = await sandboxes.at(target.sandbox).files.write(target.path, cli.io.stdin, { signal });
    return { files: 1, bytes };
  }
  if (source.kind === 'sandbox' && target.kind === 'pipe') {
    // Whoever reads it can stop at any time, so it has an end only where one is asked for.
    const { maxBytes } = takeOutOf(flags);
    const content = sandboxes.at(source.sandbox).files.readStream(source.path, {
      signal: cli.signal,
      ...(maxBytes === undefined ? {} : { maxBytes }),
    });
    await pipeline(content, cli.io.stdout, { end: false });
    return undefined;
  }
  throw new CoppiceError('invalid_argument', 'neither side of the copy is in a sandbox', {
    hint: 'Write a path in a sandbox as name:/path. For two paths here, use cp.',
  });
};

export const define: DefineCommand = (program, cli) => {
  addTakeOutOptions(
    verb(program, 'cp', 'Copy files and directories between this machine and sandboxes')
      .argument('<from>', 'path, sandbox:path, or - for standard input')
      .argument('<to>', 'path, sandbox:path, or - for standard output'),
  )
    .addHelpText(
      'after',
      examples(
        'coppice cp src dev:/workspace/',
        'coppice cp dev:/workspace/out.txt .',
        'coppice cp dev:/etc/hostname -',
      ),
    )
    .action(async (from: string, to: string, flags: TakeOutFlags) => {
      const copied = await copy(cli, from, to, flags);
      if (copied === undefined) return;
      const { files, bytes } = copied;
      const what = files === 1 ? '1 file' : `${files} files`;
      cli.out.result({ from, to, files, bytes }, () => `copied ${what}, ${formatBytes(bytes)}`);
    });
};
