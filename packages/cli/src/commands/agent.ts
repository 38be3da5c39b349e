import { formatAge, printableName } from '@coppice/console';
import type { Run, RunEvent, RunStep } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import type { Command } from 'commander';
import { collect, collectEnv } from '../args/key-value.ts';
import { parseWhole } from '../args/number.ts';
import type { Cli } from '../cli.ts';
import { Interruption } from '../interruption.ts';
import { eventLine } from '../ui/run-event.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';
import { defineWebhooks } from './agent-webhook.ts';

interface StartOptions {
  readonly task?: string;
  readonly name?: string;
  readonly agent?: string;
  readonly model?: string;
  readonly repo?: string;
  readonly ref?: string;
  readonly sandbox?: string;
  readonly image?: string;
  readonly driver?: 'container' | 'gvisor';
  readonly env?: Readonly<Record<string, string>>;
  readonly ticket?: string;
  readonly project?: string;
  readonly timeout?: number;
  readonly detach?: boolean;
}

const stateOf = ({ state, outcome, paused }: Run): string => {
  if (paused) return 'paused';
  return outcome === null || outcome === 'succeeded' ? state : `${state} (${outcome})`;
};

const runLine = (run: Run): string => `${run.name}  ${stateOf(run)}  ${printableName(run.reason)}`;

/** Only what was given: an option that was left out is none. */
const given = <T extends object>(fields: T): T =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T;

export const define: DefineCommand = (program, cli) => {
  const agent = verb(
    program,
    'agent',
    'Agents at work: start them, watch them, tell them things, rewind and fork them',
  );
  defineStart(agent, cli);
  defineLooks(agent, cli);
  defineWords(agent, cli);
  defineTime(agent, cli);
  defineWebhooks(agent, cli);
};

function defineStart(agent: Command, cli: Cli): void {
  verb(agent, 'start', 'Start an agent on a task, and watch it until it works')
    .argument('[command...]', 'the program to start, for the agent `command`')
    .requiredOption('--task <text>', 'what it is to do')
    .option('--name <name>', 'of the run')
    .option('--agent <name>', 'which agent (default: `command` with a command, otherwise `scripted`)')
    .option('--model <name>', 'which model')
    .option('--repo <url>', 'clone this repository first; the agent works in it')
    .option('--ref <ref>', 'branch, tag or commit of the repository')
    .option('--sandbox <sandbox>', 'work in this sandbox instead of a new one')
    .option('--image <image>', 'image of the new sandbox')
    .option('--driver <driver>', 'container or gvisor')
    .option('-e, --env <name=value>', 'variable of the agent (repeatable)', collectEnv(cli.io.env))
    .option('--ticket <name>', 'the ticket it works on')
    .option('--project <name>', 'the project it belongs to')
    .option('--timeout <seconds>', 'the run fails when it works for longer', parseWhole)
    .option('-d, --detach', 'do not wait until it works')
    .addHelpText(
      'after',
      examples(
        'coppice agent start --repo https://example.org/app.git --task "fix the login test"',
        'coppice agent start --task "count to ten" -- sh -c "seq 10"',
      ),
    )
    .action(async (words: string[], options: StartOptions) => {
      const { task, name, model, sandbox, image, driver, env, ticket, project, timeout } = options;
      if (options.ref !== undefined && options.repo === undefined)
        throw new CoppiceError('invalid_argument', '--ref says nothing without --repo');
      const started = await cli.coppice.runs.start(
        {
          ...given({ name, model, sandbox, image, driver, env, ticket, project, timeout_s: timeout }),
          task: task!,
          agent: options.agent ?? (words.length > 0 ? 'command' : 'scripted'),
          ...(words.length > 0 ? { command: words } : {}),
          ...(options.repo === undefined ? {} : { repo: given({ url: options.repo, ref: options.ref }) }),
        },
        { signal: cli.signal },
      );
      const run = options.detach ? started : await untilItWorks(cli, started);
      if (run.state === 'failed') cli.exitCode = 1;
      cli.out.result(run, () => `${runLine(run)}\nWatch it: coppice agent watch ${run.name}`);
    });
}

/** Shows each part of the set-up as it is done. */
async function untilItWorks(cli: Cli, { id }: Run): Promise<Run> {
  const ended = new AbortController();
  const signal = AbortSignal.any([cli.signal, ended.signal]);
  for await (const event of cli.coppice.runs.events(id, { types: 'run.state,run.setup', signal })) {
    if (event.type === 'run.setup' && event.data.status !== 'started' && !cli.out.isJson)
      cli.io.stderr.write(`${eventLine(event)}\n`);
    if (event.type === 'run.state' && ['running', 'completed', 'failed'].includes(event.data.to))
      ended.abort();
  }
  return cli.coppice.runs.get(id, { signal: cli.signal });
}

function defineLooks(agent: Command, cli: Cli): void {
  verb(agent, 'templates', 'List the agents that can be started, and where each is defined').action(
    async () => {
      const found = await cli.coppice.runs.agents({ signal: cli.signal });
      const rows = found.map(({ name, title, version, model, licence, proprietary, base, file }) => [
        name,
        printableName(title),
        version ?? '-',
        model ?? '-',
        proprietary ? `${licence} (not shipped)` : (licence ?? '-'),
        file === null ? 'ships' : `${printableName(file)} (changes ${base})`,
      ]);
      cli.out.result(found, () =>
        cli.out.table(['AGENT', 'TITLE', 'VERSION', 'MODEL', 'LICENCE', 'DEFINED IN'], rows, ''),
      );
    },
  );
  verb(agent, 'ls', 'List runs, newest first')
    .option('--state <state>', 'only those in this state')
    .action(async ({ state }: { readonly state?: Run['state'] }) => {
      const runs = await cli.coppice.runs.list({ ...given({ state }), signal: cli.signal });
      const rows = runs.map((run) => [
        run.name,
        stateOf(run),
        run.agent,
        String(run.last_step),
        formatAge(run.created_at, Date.now()),
        printableName(run.task.split('\n')[0]!.slice(0, 60)),
      ]);
      cli.out.result(runs, () =>
        cli.out.table(
          ['RUN', 'STATE', 'AGENT', 'STEPS', 'STARTED', 'TASK'],
          rows,
          'No runs. Start one: coppice agent start',
        ),
      );
    });
  verb(agent, 'show', 'Show a run: its state changes, steps and messages')
    .argument('<run>', 'name or id')
    .action(async (ref: string) => {
      const { signal } = cli;
      const [run, steps, messages] = await Promise.all([
        cli.coppice.runs.get(ref, { signal }),
        cli.coppice.runs.steps(ref, { signal }),
        cli.coppice.runs.messages(ref, { signal }),
      ]);
      cli.out.result({ ...run, steps, messages }, () =>
        [
          runLine(run),
          `task: ${printableName(run.task)}`,
          ...run.transitions.map(({ at, to, reason }) => `  ${at}  ${to}  ${printableName(reason)}`),
          ...steps.map(stepLine),
          ...messages.map(
            ({ number, state, urgency, text }) =>
              `  message ${number}  ${state}  ${urgency}  ${printableName(text)}`,
          ),
        ].join('\n'),
      );
    });
  verb(agent, 'watch', 'Show what an agent did, and follow it live')
    .argument('<run>', 'name or id')
    .option('--after <number>', 'only events after this one', parseWhole)
    .option('--types <types>', 'only of these types, with commas between; `agent.*` is all of agents')
    .action(async (ref: string, options: { readonly after?: number; readonly types?: string }) => {
      const { id } = await cli.coppice.runs.get(ref, { signal: cli.signal });
      const over = new AbortController();
      const signal = AbortSignal.any([cli.signal, over.signal]);
      const show = (event: RunEvent) =>
        cli.io.stdout.write(`${cli.out.isJson ? JSON.stringify(event) : eventLine(event)}\n`);
      const isEnd = (event: RunEvent) =>
        event.type === 'run.state' && (event.data.to === 'completed' || event.data.to === 'failed');
      const { last_seq } = await cli.coppice.runs.get(id, { signal });
      const types = options.types === undefined ? {} : { types: `${options.types},run.state` };
      for await (const event of cli.coppice.runs.events(id, {
        ...given({ after: options.after }),
        ...types,
        signal,
      })) {
        show(event);
        // An end that a rewind followed is not the last.
        if (isEnd(event) && event.seq >= last_seq - 1) over.abort();
      }
      cli.exitCode = Interruption.of(cli.signal)?.exitCode ?? 0;
    });
  verb(agent, 'result', 'Show the result of a run; waits until it ends')
    .argument('<run>', 'name or id')
    .option('--no-wait', 'fail where it has not ended')
    .action(async (ref: string, { wait }: { readonly wait: boolean }) => {
      if (wait) await cli.coppice.runs.wait(ref, { signal: cli.signal });
      const result = await cli.coppice.runs.result(ref, { signal: cli.signal });
      cli.exitCode = result.outcome === 'succeeded' ? 0 : 1;
      cli.out.result(result, () =>
        [`${result.outcome}: ${printableName(result.reason)}`, result.text].join('\n').trimEnd(),
      );
    });
}

const stepLine = ({ number, kind, title, snapshot_id }: RunStep): string =>
  `  step ${number}  ${kind}  ${printableName(title)}${snapshot_id === null ? '  (thinned out)' : ''}`;

function defineWords(agent: Command, cli: Cli): void {
  verb(agent, 'tell', 'Send a message to an agent while it works')
    .argument('<run>', 'name or id')
    .argument('<text>', 'what to tell it')
    .option('--urgency <urgency>', 'queue (after its turn), steer (into it) or now (by force where needed)')
    .option('--kind <kind>', 'user, nudge, constraint or interrupt')
    .option('--priority <number>', '0 to 9; the highest goes first', parseWhole)
    .option('--expires <seconds>', 'forget it when it was not delivered by then', parseWhole)
    .action(
      async (
        ref: string,
        text: string,
        options: {
          readonly urgency?: 'queue' | 'steer' | 'now';
          readonly kind?: 'user' | 'nudge' | 'constraint' | 'interrupt';
          readonly priority?: number;
          readonly expires?: number;
        },
      ) => {
        const { urgency, kind, priority, expires } = options;
        const message = await cli.coppice.runs.tell(ref, text, {
          ...given({ urgency, kind, priority, expires_in_s: expires }),
          signal: cli.signal,
        });
        cli.out.result(message, () => `message ${message.number} is ${message.state}`);
      },
    );
  const simple = (name: 'interrupt' | 'stop' | 'pause' | 'resume', summary: string) => {
    const command = verb(agent, name, summary).argument('<run>', 'name or id');
    if (name === 'interrupt' || name === 'stop') command.option('--reason <text>', 'why');
    command.action(async (ref: string, { reason }: { readonly reason?: string }) => {
      const options = { ...given({ reason }), signal: cli.signal };
      const run = await cli.coppice.runs[name](ref, options);
      cli.out.result(run, () => runLine(run));
    });
  };
  simple('interrupt', 'End the turn that an agent works on, and what it started');
  simple('pause', 'Let nothing of a run go on until it is resumed');
  simple('resume', 'Go on where a run was paused');
  simple('stop', 'Cancel a run; its sandbox and its steps stay until it is removed');
  verb(agent, 'rm', 'Remove a run that has ended, with its steps and the sandbox made for it')
    .argument('<run>', 'name or id')
    .action(async (ref: string) => {
      await cli.coppice.runs.remove(ref, { signal: cli.signal });
      cli.out.result({ removed: ref }, () => `removed ${ref}`);
    });
}

function defineTime(agent: Command, cli: Cli): void {
  verb(agent, 'step', 'Record the current state as a step')
    .argument('<run>', 'name or id')
    .option('--title <text>', 'what it is')
    .action(async (ref: string, { title }: { readonly title?: string }) => {
      const step = await cli.coppice.runs.takeStep(ref, { ...given({ title }), signal: cli.signal });
      cli.out.result(step, () => `step ${step.number}`);
    });
  verb(agent, 'rewind', 'Rewind a run to a step, files and conversation included, and continue from there')
    .argument('<run>', 'name or id')
    .requiredOption('--to <step>', 'number of the step', parseWhole)
    .option('-m, --message <text>', 'what the agent is told then')
    .action(async (ref: string, { to, message }: { readonly to: number; readonly message?: string }) => {
      const run = await cli.coppice.runs.rewind(ref, to, { ...given({ message }), signal: cli.signal });
      cli.out.result(run, () => runLine(run));
    });
  verb(agent, 'fork', 'Start another run from a step of this one')
    .argument('<run>', 'name or id')
    .option('--from <step>', 'number of the step (default: the last)', parseWhole)
    .option('-m, --message <text>', 'what its agent is told')
    .option('--name <name>', 'of the new run')
    .action(
      async (
        ref: string,
        options: { readonly from?: number; readonly message?: string; readonly name?: string },
      ) => {
        const { from, message, name } = options;
        const run = await cli.coppice.runs.fork(ref, {
          ...given({ from, message, name }),
          signal: cli.signal,
        });
        cli.out.result(run, () => runLine(run));
      },
    );
  verb(agent, 'race', 'Fork a run several times, judge each result, and merge the best')
    .argument('<run>', 'name or id')
    .requiredOption(
      '--judge <command>',
      'run in each fork when it has ended; the first that succeeds, then the quickest, wins',
    )
    .option('--n <number>', 'how many forks (default: 3)', parseWhole)
    .option('--from <step>', 'number of the step (default: the last)', parseWhole)
    .option('-m, --message <text>', 'what each is told; give it again for each fork', collect)
    .option('--no-merge', 'only say which is the best')
    .action(
      async (
        ref: string,
        options: {
          readonly judge: string;
          readonly n?: number;
          readonly from?: number;
          readonly message?: readonly string[];
          readonly merge: boolean;
        },
      ) => {
        const { judge, n, from, message = [], merge } = options;
        const { signal } = cli;
        const begun = await cli.coppice.runs.race(ref, {
          judge,
          messages: [...message],
          merge,
          ...given({ n, from }),
          signal,
        });
        const result = await cli.out.during('racing', () =>
          cli.coppice.runs.waitForRace(ref, begun.number, { signal }),
        );
        if (result.winner === null) cli.exitCode = 1;
        const rows = result.entries.map(({ run_id, exit_code, duration_ms }) => [
          run_id === result.winner ? `${run_id} *` : run_id,
          exit_code === null ? '-' : String(exit_code),
          duration_ms === null ? '-' : `${(duration_ms / 1000).toFixed(1)} s`,
        ]);
        cli.out.result(result, () => cli.out.table(['RUN', 'JUDGE', 'TOOK'], rows, ''));
      },
    );
  verb(agent, 'compare', 'Compare two runs step by step, and the files they have now')
    .argument('<a>', 'name or id')
    .argument('<b>', 'name or id')
    .action(async (a: string, b: string) => {
      const found = await cli.coppice.runs.compare(a, b, { signal: cli.signal });
      const title = (step: RunStep | null) => (step === null ? '' : printableName(step.title));
      const rows = found.steps.map((step) => [String(step.number), title(step.a), title(step.b)]);
      cli.out.result(found, () =>
        [
          cli.out.table(['STEP', a, b], rows, 'No steps.'),
          ...found.files.map(({ path, change }) => `${change}  ${printableName(path)}`),
        ].join('\n'),
      );
    });
}
