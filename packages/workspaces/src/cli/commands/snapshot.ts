import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { plural } from '@coppice/console';
import { CoppiceError } from '@coppice/protocol/errors';
import type { JvsCommand } from '../command.ts';
import type { JvsContext } from '../jvs-context.ts';
import { sizeText, snapshotLine } from '../snapshot-lines.ts';

const readAll = async (input: AsyncIterable<Buffer | string>): Promise<string> => {
  const parts: Buffer[] = [];
  for await (const part of input) parts.push(Buffer.from(part));
  return Buffer.concat(parts).toString('utf8');
};

const noteOf = async (context: JvsContext): Promise<string> => {
  const [word] = context.args.words;
  const file = context.args.value('file');
  if (word !== undefined && file !== undefined) {
    throw new CoppiceError('invalid_argument', 'give the note as a word or with -F, not both');
  }
  if (word === '-' || file === '-') return (await readAll(context.io.stdin)).trimEnd();
  if (file !== undefined) return readFileSync(resolve(context.directory, file), 'utf8').trimEnd();
  return word ?? '';
};

export const snapshot: JvsCommand = {
  name: 'snapshot',
  usage: '[NOTE | -] [--tag TAG …] [--paths PATH …] [-F FILE | -]',
  summary: 'take a snapshot of the worktree as it is now',
  options: [
    { name: 'tag', kind: 'list', value: 'TAG', help: 'a tag; may be given again, or with commas' },
    { name: 'paths', kind: 'words', value: 'PATH …', help: 'only these paths' },
    {
      name: 'file',
      short: 'F',
      kind: 'value',
      value: 'FILE',
      help: 'read the note from a file; - is the input',
    },
  ],
  least: 0,
  most: 1,
  async run(context) {
    const note = await noteOf(context);
    const workspace = await context.open();
    const taken = await workspace.snapshot({
      note,
      tags: context.args.list('tag'),
      paths: context.args.list('paths'),
      from: context.directory,
    });
    context.answer({ ...taken, warnings: context.warnings }, () => [
      snapshotLine(taken, false, context.colour),
      `  ${plural(taken.files, 'file')}, ${sizeText(taken.bytes)}; ${sizeText(taken.new_bytes)} new (${taken.engine})`,
    ]);
    return 0;
  },
};
