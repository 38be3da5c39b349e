import { printableName } from '@coppice/console';
import { type Answered, type AskAnswer, answers, type RouteBody } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import { collect } from '../args/key-value.ts';
import { addNetworkOptions, type NetworkOptions, networkPatch } from '../args/network-options.ts';
import { describeConnection, describeNetwork, describeQuestions } from '../ui/network.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

const nothing = {
  allow_internet: false,
  allow_inter_sandbox: false,
  allowed_ports: [],
  allow: [],
  deny: [],
  allow_host_ports: [],
  ask: false,
};

const parseAnswer = (text: string): RouteBody<'answerQuestion'> => {
  const [, name, port, word] = /^([^:=]+)(?::(\d{1,5}))?=(.*)$/.exec(text) ?? [];
  const answer = answers.find((each) => each === word);
  if (name === undefined || answer === undefined)
    throw new CoppiceError('invalid_argument', `${text} is no answer`, {
      hint: `For example: --answer api.example.com=allow. Answers are ${answers.join(', ')}.`,
    });
  return { name, answer, ...(port === undefined ? {} : { port: Number(port) }) };
};

const outcomes: Readonly<Record<AskAnswer, string>> = {
  allow: 'is allowed from now on',
  once: 'was allowed this once',
  refuse: 'was refused, and is not asked about again for ten minutes',
  deny: 'is denied from now on',
};

const describeAnswer = ({ name, port, answer, connections }: Answered): string =>
  printableName(`${name}:${port} ${outcomes[answer]}; ${connections} connections waited`);

export const define: DefineCommand = (program, cli) => {
  addNetworkOptions(verb(program, 'net', 'Show or change what a sandbox may reach; works while it runs'))
    .argument('<sandbox>', 'name or id')
    .option('--no-internet', 'keep it from the internet')
    .option('--no-inter-sandbox', 'keep it from other sandboxes')
    .option('--none', 'first forget all that was allowed or denied')
    .option('--no-ask', 'refuse at once what no rule allows')
    .option('--asked', 'list what it wants to reach and nobody has answered yet')
    .option(
      '--answer <name[:port]=answer>',
      `answer what it asks: ${answers.join(', ')}; allow and deny change the policy (repeatable)`,
      collect,
    )
    .option('--watch', 'show what it reaches by name, and what is refused, until interrupted')
    .addHelpText(
      'after',
      examples(
        'coppice net dev --allow npm --allow api.example.com',
        "coppice net dev --allow '*.example.com:443' --watch",
        'coppice net dev --internet --allow-port 443 --allow-port 53',
        'coppice net dev --allow 198.51.100.7 --allow-port 443',
        'coppice net dev --host-port 5432',
        'coppice net dev --allow npm --ask',
        'coppice net dev --answer api.example.com=allow',
        'coppice net dev --none',
      ),
    )
    .action(
      async (
        ref: string,
        options: NetworkOptions & {
          readonly none?: boolean;
          readonly watch?: boolean;
          readonly asked?: boolean;
          readonly answer?: string[];
        },
      ) => {
        const sandbox = cli.coppice.sandboxes.at(ref);
        const { signal } = cli;
        if (options.answer !== undefined || options.asked) {
          const changes = options.none || options.watch || Object.keys(networkPatch(options)).length > 0;
          if (changes || (options.asked && options.answer !== undefined))
            throw new CoppiceError('invalid_argument', '--asked and --answer stand alone', {
              hint: 'Change the policy with another command.',
            });
          if (options.answer === undefined) {
            const questions = await sandbox.questions({ signal });
            cli.out.result(questions, () => describeQuestions(ref, questions, Date.now()));
            return;
          }
          const done: Answered[] = [];
          for (const answer of options.answer.map(parseAnswer))
            done.push(await sandbox.answer(answer, { signal }));
          cli.out.result(done, () => done.map(describeAnswer).join('\n'));
          return;
        }
        const patch = { ...(options.none ? nothing : {}), ...networkPatch(options) };
        const changed = Object.keys(patch).length > 0;
        const info = changed
          ? (await sandbox.setNetwork(patch, { signal })).info
          : await sandbox.inspect({ signal });
        if (info === undefined) return;
        if (options.watch) {
          try {
            for await (const connection of sandbox.connections({ signal }))
              cli.io.stdout.write(
                `${cli.out.isJson ? JSON.stringify(connection) : describeConnection(info, connection)}\n`,
              );
          } catch (error) {
            // Whoever watches ends it by an interrupt.
            if (!signal.aborted) throw error;
          }
          return;
        }
        cli.out.result(info.network, () => `${info.name}: ${describeNetwork(info.network)}`);
      },
    );
};
