import { CoppiceError } from '@coppice/protocol/errors';
import { parseWhole } from '../args/number.ts';
import { expandSandboxes } from '../args/pattern.ts';
import {
  addProcessOptions,
  addTimeoutOption,
  commandLine,
  type ProcessFlags,
  processFields,
} from '../args/process-options.ts';
import { outcomeText, runInAll } from '../process/run-in-all.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options extends ProcessFlags {
  readonly parallel?: number;
}

export const define: DefineCommand = (program, cli) => {
  addTimeoutOption(
    addProcessOptions(verb(program, 'each', 'Run a command in every matching sandbox, in parallel'), cli),
  )
    .argument('<sandboxes>', "names, with commas between; * and ? stand for letters: 'dev-*'")
    .passThroughOptions()
    .argument('<command...>', 'program and arguments; a single word is a command line for the shell')
    .option('--parallel <number>', 'how many at once (default: 16)', parseWhole)
    .addHelpText(
      'after',
      examples("coppice each 'dev-*' -- make test", "coppice each a,b 'git pull && make'"),
    )
    .action(async (given: string, words: string[], options: Options) => {
      const command = commandLine(words);
      const names = await expandSandboxes(
        cli,
        given.split(',').filter((name) => name !== ''),
      );
      if (names.length === 0)
        throw new CoppiceError('invalid_argument', 'no sandbox was named', {
          hint: "Name some, or a pattern: coppice each 'dev-*' -- COMMAND",
        });
      const targets = names.map((name) => ({ name, sandbox: cli.coppice.sandboxes.at(name) }));
      const { parallel = 16 } = options;
      if (parallel < 1) throw new CoppiceError('invalid_argument', '--parallel must be at least 1');
      const outcomes = await runInAll(cli, targets, command, { fields: processFields(options), parallel });
      cli.out.result(outcomes, () => outcomeText(cli, outcomes));
    });
};
