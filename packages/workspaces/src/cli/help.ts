import { globalOptions } from './arguments.ts';
import type { JvsCommand } from './command.ts';
import { commandNames, loadCommand } from './registry.ts';

const optionLines = (options: JvsCommand['options']): string[] =>
  options.map(({ name, short, value, help }) => {
    const written = `${short ? `-${short}, ` : ''}--${name}${value ? ` ${value}` : ''}`;
    return `  ${written.padEnd(24)} ${help}`;
  });

export const commandHelp = (command: JvsCommand): string =>
  [
    `usage: jvs ${command.name} ${command.usage}`,
    '',
    command.summary,
    '',
    ...optionLines([...command.options, ...globalOptions]),
    '',
  ].join('\n');

export const generalHelp = async (): Promise<string> => {
  const commands = await Promise.all(commandNames.map(loadCommand));
  return [
    'usage: jvs COMMAND …',
    '',
    'Plain directories with snapshots, restore, history and branches.',
    '',
    ...commands.map(({ name, summary }) => `  ${name.padEnd(12)} ${summary}`),
    '',
    'A snapshot is named by HEAD, its id or the beginning of it, a tag (the newest), or the beginning of its note.',
    'Exit codes: 0 done; 2 wrong arguments; 4 not allowed; 5 not found; 6 ambiguous or taken; 7 wrong state;',
    '8 conflict; 10 too large; 11 not possible here; 71 damaged; 74 disk full; 130 cancelled; 70 a fault in jvs.',
    '',
    'jvs COMMAND --help says more about one command.',
    '',
  ].join('\n');
};
