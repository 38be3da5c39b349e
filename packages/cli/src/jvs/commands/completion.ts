import { CoppiceError } from '@coppice/protocol/errors';
import { globalOptions } from '../arguments.ts';
import type { JvsCommand } from '../command.ts';
import { commandNames, loadCommand } from '../registry.ts';

interface Completed {
  readonly name: string;
  readonly summary: string;
  readonly words: readonly string[];
}

const below: Readonly<Record<string, readonly string[]>> = {
  worktree: ['fork', 'create', 'list', 'path', 'rename', 'remove'],
  gc: ['plan', 'run'],
  config: ['show', 'get', 'set'],
  completion: ['bash', 'zsh', 'fish'],
};

const collect = async (): Promise<Completed[]> => {
  const all: Completed[] = [];
  for (const name of commandNames) {
    const { summary, options } = await loadCommand(name);
    const flags = [...options, ...globalOptions].map((option) => `--${option.name}`);
    all.push({ name, summary, words: [...(below[name] ?? []), ...flags] });
  }
  return all;
};

const cases = (all: readonly Completed[]): string =>
  all.map(({ name, words }) => `    ${name}) words="${words.join(' ')}" ;;`).join('\n');

const bash = (all: readonly Completed[]): string => `_jvs() {
  local words
  if [ "$COMP_CWORD" -eq 1 ]; then words="${all.map(({ name }) => name).join(' ')}"
  else case "\${COMP_WORDS[1]}" in
${cases(all)}
    *) words="" ;;
  esac; fi
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _jvs jvs
`;

const zsh = (all: readonly Completed[]): string => `#compdef jvs
autoload -U +X bashcompinit && bashcompinit
${bash(all)}`;

const fish = (all: readonly Completed[]): string =>
  all
    .flatMap(({ name, summary, words }) => [
      `complete -c jvs -n __fish_use_subcommand -a ${name} -d '${summary.replaceAll("'", '')}'`,
      `complete -c jvs -n '__fish_seen_subcommand_from ${name}' -a '${words.join(' ')}'`,
    ])
    .map((line) => `${line}\n`)
    .join('');

const shells: Readonly<Record<string, (all: readonly Completed[]) => string>> = { bash, zsh, fish };

export const completion: JvsCommand = {
  name: 'completion',
  usage: 'bash | zsh | fish',
  summary: 'print a completion script for a shell',
  options: [],
  least: 1,
  most: 1,
  async run(context) {
    const shell = shells[context.args.words[0] ?? ''];
    if (!shell)
      throw new CoppiceError('invalid_argument', `no completion for ${context.args.words[0]}`, {
        hint: 'Use bash, zsh or fish.',
      });
    context.io.stdout.write(shell(await collect()));
    return 0;
  },
};
