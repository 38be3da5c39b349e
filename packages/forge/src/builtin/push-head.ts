import { branchNameSchema, CoppiceError } from '@coppice/protocol';

/** What a push asks for, before its pack. */
export interface PushCommand {
  readonly old: string;
  readonly new: string;
  readonly ref: string;
}

const mostBytes = 262_144;
const mostCommands = 1000;

const refused = (message: string): CoppiceError =>
  new CoppiceError('invalid_argument', `the push is refused: ${message}`, {
    hint: 'Push branches and tags with names of letters, digits, `.`, `_`, `/`, `@`, `+` or `-`.',
  });

/**
 * Reads the commands of a push off its stream, so that they are judged before git sees any of it: how many, of which names, to
 * what. Gives them, and all the bytes as they came.
 */
export async function readPushHead(
  body: AsyncIterable<Uint8Array>,
): Promise<{ commands: PushCommand[]; bytes: AsyncIterable<Uint8Array> }> {
  const iterator = body[Symbol.asyncIterator]();
  const commands: PushCommand[] = [];
  let head = Buffer.alloc(0);
  let at = 0;
  for (;;) {
    while (head.length < at + 4) {
      const next = await iterator.next();
      if (next.done) throw refused('it breaks off among its commands');
      head = Buffer.concat([head, next.value]);
      if (head.length - at > 8 * 1024 * 1024 || at > mostBytes) throw tooMany();
    }
    const size = head.toString('latin1', at, at + 4);
    if (size === '0000') break;
    if (!/^[0-9a-f]{4}$/.test(size)) throw refused('its commands are not in the form of git');
    const length = Number.parseInt(size, 16);
    if (length < 5) throw refused('its commands are not in the form of git');
    while (head.length < at + length) {
      const next = await iterator.next();
      if (next.done) throw refused('it breaks off among its commands');
      head = Buffer.concat([head, next.value]);
    }
    commands.push(readCommand(head.toString('utf8', at + 4, at + length)));
    at += length;
    if (commands.length > mostCommands || at > mostBytes) throw tooMany();
  }
  async function* bytes(): AsyncGenerator<Uint8Array> {
    try {
      yield head;
      for (let next = await iterator.next(); !next.done; next = await iterator.next()) yield next.value;
    } finally {
      await iterator.return?.();
    }
  }
  return { commands, bytes: bytes() };
}

const tooMany = (): CoppiceError =>
  new CoppiceError('too_large', `a push changes at most ${mostCommands} branches and tags`, {
    hint: 'Push fewer at once.',
  });

function readCommand(line: string): PushCommand {
  const [text = ''] = line.split('\0');
  const [, old, fresh, ref] = /^([0-9a-f]{40}) ([0-9a-f]{40}) (\S+)\n?$/.exec(text) ?? [];
  if (old === undefined || fresh === undefined || ref === undefined)
    throw refused(`${JSON.stringify(text.slice(0, 60))} is no change of a branch or a tag`);
  const name = /^refs\/(?:heads|tags)\/(.+)$/.exec(ref)?.[1];
  if (name === undefined || !branchNameSchema.safeParse(name).success)
    throw refused(`${JSON.stringify(ref.slice(0, 80))} is no branch or tag that is taken here`);
  return { old, new: fresh, ref };
}
