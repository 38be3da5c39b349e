import { CoppiceError } from '@coppice/protocol/errors';
import { shortId, type Workspace } from '../../index.ts';
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

/** Commands whose words are snapshots. */
const takesReferences = ['restore', 'diff', 'verify', 'ls', 'cat', 'pin', 'unpin', 'tag', 'untag'];

const cases = (all: readonly Completed[]): string =>
  all
    .map(({ name, words }) => {
      const more = takesReferences.includes(name)
        ? ' more=refs'
        : name === 'worktree'
          ? ' more=worktrees'
          : '';
      return `    ${name}) words="${words.join(' ')}"${more} ;;`;
    })
    .join('\n');

/** What a workspace names may hold anything that a shell would expand: it is compared and quoted, and never expanded. */
const bash = (all: readonly Completed[]): string => `_jvs() {
  local words="" more="" word current="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}"
  if [ "$COMP_CWORD" -eq 1 ]; then words="${all.map(({ name }) => name).join(' ')} help"
  elif [ "$before" = --tag ] || [ "$before" = --latest-tag ]; then more=tags
  else case "\${COMP_WORDS[1]}" in
${cases(all)}
    help) words="${all.map(({ name }) => name).join(' ')}" ;;
  esac; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [ -n "$more" ] && [ "\${current#-}" = "$current" ]; then
    while IFS= read -r word; do
      if [ "\${word#"$current"}" != "$word" ] || [ -z "$current" ]; then COMPREPLY+=("$(printf %q "$word")"); fi
    done < <(jvs completion words "$more" 2> /dev/null)
  fi
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
      ...(takesReferences.includes(name)
        ? [
            `complete -c jvs -n '__fish_seen_subcommand_from ${name}' -a '(jvs completion words refs 2> /dev/null)'`,
          ]
        : []),
    ])
    .map((line) => `${line}\n`)
    .join('');

const shells: Readonly<Record<string, (all: readonly Completed[]) => string>> = { bash, zsh, fish };

/** What the workspace around has names for. */
const namedIn = ({ session }: Workspace, kind: string): readonly string[] => {
  const snapshots = [...session.state.snapshots.values()];
  const tags = [...new Set(snapshots.flatMap((snapshot) => snapshot.tags))];
  switch (kind) {
    case 'tags':
      return tags;
    case 'refs':
      return ['HEAD', ...tags, ...snapshots.map((snapshot) => shortId(snapshot.snapshot_id))];
    case 'worktrees':
      return [...session.state.worktrees.keys()];
    default:
      throw new CoppiceError('invalid_argument', `there are no words ${JSON.stringify(kind)}`, {
        hint: 'Use refs, tags or worktrees.',
      });
  }
};

export const completion: JvsCommand = {
  name: 'completion',
  usage: 'bash | zsh | fish | words refs | words tags | words worktrees',
  summary: 'print a completion script for a shell, or the words that it asks for',
  options: [],
  least: 1,
  most: 2,
  async run(context) {
    const [first, second] = context.args.words;
    if (first === 'words') {
      const found = namedIn(await context.open(), second ?? '');
      context.answer(found, () => found);
      return 0;
    }
    const shell = second === undefined ? shells[first ?? ''] : undefined;
    if (!shell)
      throw new CoppiceError('invalid_argument', `no completion for ${context.args.words[0]}`, {
        hint: 'Use bash, zsh or fish.',
      });
    context.io.stdout.write(shell(await collect()));
    return 0;
  },
};
