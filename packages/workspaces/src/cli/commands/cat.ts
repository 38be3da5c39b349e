import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { CoppiceError } from '@coppice/protocol/errors';
import type { JvsCommand } from '../command.ts';

export const cat: JvsCommand = {
  name: 'cat',
  usage: 'REF:PATH',
  summary: 'write a file of a snapshot to the output, without restoring it',
  options: [],
  least: 1,
  most: 1,
  async run(context) {
    const workspace = await context.open();
    const [word = ''] = context.args.words;
    const { snapshot, path } = workspace.resolvePath(word);
    if (path === '') {
      throw new CoppiceError('invalid_argument', `${JSON.stringify(word)} names no file`, {
        hint: 'Write REF:PATH, as in `jvs cat baseline:agent.py`.',
      });
    }
    using tree = workspace.stored(snapshot);
    await tree.read(path, async (copy) => {
      const { stdout } = context.io;
      for await (const piece of createReadStream(copy)) {
        if (stdout.write(piece) === false) await once(stdout as NodeJS.WritableStream, 'drain');
      }
    });
    return 0;
  },
};
