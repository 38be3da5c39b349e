export type ShellName = 'bash' | 'zsh' | 'fish';

/** What a shell needs to know of a command. */
export interface VerbWords {
  readonly name: string;
  readonly summary: string;
  readonly options: readonly string[];
  readonly subcommands: readonly VerbWords[];
  /** Its arguments are sandboxes, which the daemon is asked for. */
  readonly completesSandboxes: boolean;
}

const names = 'coppice ls --quiet 2>/dev/null';

const bashCase = (verb: VerbWords): string => {
  const words = [...verb.subcommands.map(({ name }) => name), ...verb.options].join(' ');
  const sandboxes = verb.completesSandboxes ? ` sandboxes=$(${names})` : '';
  return `    ${verb.name}) words='${words}'${sandboxes} ;;`;
};

const bash = (verbs: readonly VerbWords[]): string => `# bash completion of coppice
_coppice() {
  local current=\${COMP_WORDS[COMP_CWORD]} words='' sandboxes=''
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '${verbs.map(({ name }) => name).join(' ')} --help --version' -- "$current"))
    return
  fi
  case \${COMP_WORDS[1]} in
${verbs.map(bashCase).join('\n')}
  esac
  [[ $current == -* ]] && sandboxes=''
  COMPREPLY=($(compgen -W "$words $sandboxes" -- "$current"))
}
complete -o default -F _coppice coppice
`;

/** zsh runs the script of bash, and shows what each command does. */
const zsh = (verbs: readonly VerbWords[]): string => `#compdef coppice
_coppice() {
  local -a verbs
  if ((CURRENT == 2)); then
    verbs=(
${verbs.map(({ name, summary }) => `      '${name}:${summary.replaceAll("'", "'\\''").replaceAll(':', '\\:')}'`).join('\n')}
    )
    _describe command verbs
    return
  fi
  case $words[2] in
${verbs
  .map((verb) => {
    const known = [...verb.subcommands.map(({ name }) => name), ...verb.options].join(' ');
    const sandboxes = verb.completesSandboxes ? ` \${(f)"$(${names})"}` : '';
    return `    ${verb.name}) compadd -- ${known}${sandboxes} ;;`;
  })
  .join('\n')}
  esac
  _files
}
compdef _coppice coppice
`;

const fish = (verbs: readonly VerbWords[]): string => {
  const lines = ['# fish completion of coppice', 'complete -c coppice -f'];
  for (const verb of verbs) {
    const seen = `__fish_seen_subcommand_from ${verb.name}`;
    const summary = verb.summary.replaceAll("'", "\\'");
    lines.push(`complete -c coppice -n __fish_use_subcommand -a ${verb.name} -d '${summary}'`);
    for (const { name } of verb.subcommands) lines.push(`complete -c coppice -n '${seen}' -a ${name}`);
    for (const option of verb.options) {
      const flag = option.startsWith('--') ? `-l ${option.slice(2)}` : `-s ${option.slice(1)}`;
      lines.push(`complete -c coppice -n '${seen}' ${flag}`);
    }
    if (verb.completesSandboxes) lines.push(`complete -c coppice -n '${seen}' -a '(${names})'`);
  }
  return `${lines.join('\n')}\n`;
};

export const completionScript = (shell: ShellName, verbs: readonly VerbWords[]): string =>
  ({ bash, zsh, fish })[shell](verbs);
