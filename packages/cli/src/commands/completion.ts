import type { Command } from 'commander';
import { Argument, type Option } from 'commander';
import { completionScript, type ShellName, type VerbWords } from '../ui/completion-script.ts';
import { type DefineCommand, verb } from '../verb.ts';

const wordsOf = (command: Command): VerbWords => ({
  name: command.name(),
  summary: command.description(),
  options: command.options.flatMap(({ long, short }: Option) =>
    [long, short].filter((flag) => flag !== undefined),
  ),
  subcommands: command.commands.map(wordsOf),
  completesSandboxes: command.registeredArguments.some((argument: Argument) =>
    /sandbox|source|from|into|ref/.test(argument.name()),
  ),
});

export const define: DefineCommand = (program, cli) => {
  verb(program, 'completion', 'Print the completion script of a shell')
    .addArgument(new Argument('<shell>', 'which one').choices(['bash', 'zsh', 'fish']))
    .addHelpText(
      'after',
      '\nExamples:\n  source <(coppice completion bash)\n  coppice completion fish | source',
    )
    .action(async (shell: ShellName) => {
      const { buildProgram } = await import('../program.ts');
      const whole = await buildProgram(cli);
      const script = completionScript(shell, whole.commands.map(wordsOf));
      cli.out.result({ shell, script }, () => script.trimEnd());
    });
};
