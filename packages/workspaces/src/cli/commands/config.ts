import { CoppiceError } from '@coppice/protocol/errors';
import { checkSettingKey, readSettings, writeSetting } from '../../index.ts';
import type { JvsCommand } from '../command.ts';

const text = (value: unknown): string => (Array.isArray(value) ? value.join(',') : String(value));

export const config: JvsCommand = {
  name: 'config',
  usage: '[show] | get KEY | set KEY VALUE',
  summary: 'show or change the settings of the workspace',
  options: [],
  least: 0,
  most: 3,
  async run(context) {
    const [action = 'show', key = '', value = ''] = context.args.words;
    const given = context.args.words.length;
    const { layout } = (await context.open()).session;
    if (action === 'show' && given <= 1) {
      const settings = readSettings(layout);
      context.answer(settings, () => Object.entries(settings).map(([name, set]) => `${name} = ${text(set)}`));
    } else if (action === 'get' && given === 2) {
      const found = readSettings(layout)[checkSettingKey(key)];
      context.answer({ [key]: found }, () => [text(found)]);
    } else if (action === 'set' && given === 3) {
      const settings = writeSetting(layout, key, value);
      context.answer(settings, () => [`${key} = ${text(settings[checkSettingKey(key)])}`]);
    } else throw new CoppiceError('invalid_argument', 'usage: jvs config [show] | get KEY | set KEY VALUE');
    return 0;
  },
};
