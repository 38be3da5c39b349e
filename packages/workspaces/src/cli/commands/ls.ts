import { pathText } from '../change-lines.ts';
import type { JvsCommand } from '../command.ts';
import { localTime } from '../snapshot-lines.ts';

export const ls: JvsCommand = {
  name: 'ls',
  usage: '[REF[:PATH]] [-l] [-R]',
  summary: 'list what a snapshot holds (HEAD by default), without restoring it',
  options: [
    { name: 'long', short: 'l', kind: 'flag', help: 'with mode, size and time' },
    { name: 'recursive', short: 'R', kind: 'flag', help: 'with everything below' },
  ],
  least: 0,
  most: 1,
  async run(context) {
    const workspace = await context.open();
    const { snapshot, path } = workspace.resolvePath(context.args.words[0] ?? 'HEAD');
    using tree = workspace.stored(snapshot);
    const entries = tree.list(path, context.args.has('recursive'));
    context.answer(entries, () =>
      entries.map(({ path: name, type, mode, size, modified_at: at, target }) => {
        const shown = `${pathText(name)}${type === 'd' ? '/' : ''}`;
        if (!context.args.has('long')) return shown;
        const link = target === null ? '' : ` -> ${pathText(target)}`;
        return `${type} ${mode.toString(8).padStart(4, '0')} ${String(size).padStart(10)} ${localTime(at)} ${shown}${link}`;
      }),
    );
    return 0;
  },
};
