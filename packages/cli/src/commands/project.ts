import type { RouteBody } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import { parseDurationSeconds } from '../args/duration.ts';
import { parseWhole } from '../args/number.ts';
import { parseConfig, readDocument } from '../projects/config-argument.ts';
import { confirmPromotion } from '../projects/confirm-promotion.ts';
import {
  comparisonText,
  detailText,
  evaluationText,
  experimentText,
  productionTable,
  projectTable,
  summaryText,
} from '../projects/project-text.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

const parseAmount = (text: string): number => {
  if (!/^-?\d{1,9}(\.\d{1,6})?$/.test(text))
    throw new CoppiceError('invalid_argument', `${text} is no number`, { hint: 'For example: 12.50' });
  return Number(text);
};

export const define: DefineCommand = (program, cli) => {
  const project = verb(program, 'project', 'Try agents, measure them, promote what is worth it');
  const { signal } = cli;

  verb(project, 'create', 'Create a project')
    .argument('<name>', 'what it is called')
    .option('--description <text>', 'what it is to show', '')
    .option('--cap <dollars>', 'what it may cost in all', parseAmount)
    .option('--time-limit <duration>', 'end it after that long, such as 2h or 7d', parseDurationSeconds)
    .addHelpText('after', examples('coppice project create "My Experiment" --cap 20 --time-limit 7d'))
    .action(async (name: string, options: { description: string; cap?: number; timeLimit?: number }) => {
      const { description, cap: cap_usd, timeLimit: time_limit_s } = options;
      const made = await cli.coppice.projects.create({ name, description, cap_usd, time_limit_s, signal });
      cli.out.result(made, () => made.id);
    });
  verb(project, 'ls', 'List projects').action(async () => {
    const list = await cli.coppice.projects.list({ signal });
    cli.out.result(list, () => projectTable(cli.out, list));
  });
  verb(project, 'status', 'Sum up all projects, and name those that look abandoned').action(async () => {
    const summary = await cli.coppice.projects.summary({ signal });
    cli.out.result(summary, () => summaryText(cli.out, summary));
  });
  verb(project, 'show', 'Show a project with its agents, experiments and notes')
    .argument('<project>', 'id or name')
    .action(async (ref: string) => {
      const found = await cli.coppice.projects.get(ref, { signal });
      cli.out.result(found, () => detailText(cli.out, found));
    });
  verb(project, 'deploy', 'Deploy an agent and start its first run in a sandbox of its own')
    .argument('<project>', 'id or name')
    .argument('<type>', 'see `coppice project types`')
    .option('--name <name>', 'what the agent is called')
    .option('--config <json>', 'its configuration: JSON, @file, or key=value', parseConfig)
    .option('--no-run', 'do not run it yet')
    .addHelpText(
      'after',
      examples(`coppice project deploy prj_abc123 scripted --config '{"script":"echo hello"}'`),
    )
    .action(
      async (
        ref: string,
        type: string,
        options: { name?: string; config?: Record<string, never>; run: boolean },
      ) => {
        const { name, config, run } = options;
        const agent = await cli.coppice.projects.deploy(ref, { type, name, config, run, signal });
        cli.out.result(agent, () => agent.id);
      },
    );
  verb(project, 'agent', 'Pause, resume, kill or run an agent of a project')
    .argument('<project>', 'id or name')
    .argument('<agent>', 'id or name')
    .argument('<what>', 'pause, resume, kill or run')
    .action(async (ref: string, agent: string, what: string) => {
      if (what === 'run') {
        const run = await cli.coppice.projects.run(ref, agent, { signal });
        cli.out.result(run, () => run.id);
        return;
      }
      const status = { pause: 'paused', resume: 'active', kill: 'killed' }[what] as
        | 'paused'
        | 'active'
        | 'killed'
        | undefined;
      if (status === undefined)
        throw new CoppiceError('invalid_argument', `${what} is nothing that an agent does`, {
          hint: 'One of: pause, resume, kill, run',
        });
      const changed = await cli.coppice.projects.changeAgent(ref, agent, { status }, { signal });
      cli.out.result(changed, () => `${changed.id} is ${changed.status}`);
    });
  verb(project, 'runs', 'List the latest runs of a project')
    .argument('<project>', 'id or name')
    .action(async (ref: string) => {
      const runs = await cli.coppice.projects.runs(ref, { signal });
      cli.out.result(runs, () =>
        cli.out.table(
          ['RUN', 'AGENT', 'STATE', 'EXIT', 'STARTED', 'SAID'],
          runs.map(({ id, agent, state, exit, started_at, summary }) => [
            id,
            agent,
            state,
            exit ?? '-',
            started_at,
            summary.slice(0, 80),
          ]),
          'No runs yet.',
        ),
      );
    });
  verb(project, 'report-metric', 'Report revenue, a cost or any other number')
    .argument('<project>', 'id or name')
    .argument('<name>', 'revenue, cost, or a name of your own')
    .argument('<value>', 'dollars for revenue and cost; negative for a refund or a correction', parseAmount)
    .option('--agent <agent>', 'whose it is; the only agent of the project unless told otherwise')
    .option('--source <source>', 'who says so', 'hand')
    .option('--key <key>', 'the same key again changes nothing')
    .option('--evidence <text>', 'where it can be seen')
    .action(
      async (
        ref: string,
        name: string,
        value: number,
        options: { agent?: string; source: string; key?: string; evidence?: string },
      ) => {
        const metrics = await cli.coppice.projects.report(ref, { name, value, ...options, signal });
        cli.out.result(metrics, () => `${name} ${value} is booked`);
      },
    );
  verb(project, 'note', 'Add a note on what was learnt; it moves to production with the project')
    .argument('<project>', 'id or name')
    .argument('<text>')
    .option('--agent <agent>', 'for this agent alone')
    .action(async (ref: string, text: string, { agent }: { agent?: string }) => {
      await cli.coppice.projects.note(ref, { text, agent }, { signal });
      cli.out.result({ text }, () => 'written down');
    });
  verb(project, 'ledger', 'Show every cost and revenue with its source; works for deleted projects too')
    .argument('<project>', 'id or name')
    .action(async (ref: string) => {
      const entries = await cli.coppice.projects.ledger(ref, { signal });
      cli.out.result(entries, () =>
        cli.out.table(
          ['AT', 'KIND', 'USD', 'SOURCE', 'AGENT'],
          entries.map(({ at, kind, usd, source, agent }) => [at, kind, String(usd), source, agent ?? '-']),
          'The ledger is empty.',
        ),
      );
    });
  verb(project, 'budget', 'Change the cap or the time limit of a project')
    .argument('<project>', 'id or name')
    .option('--cap <dollars>', 'what it may cost in all; `none` for no cap')
    .option('--time-limit <duration>', 'end it after that long from now; `none` for no end')
    .action(async (ref: string, options: { cap?: string; timeLimit?: string }) => {
      const body: RouteBody<'limitProject'> = {};
      if (options.cap !== undefined) body.cap_usd = options.cap === 'none' ? null : parseAmount(options.cap);
      if (options.timeLimit !== undefined)
        body.time_limit_s = options.timeLimit === 'none' ? null : parseDurationSeconds(options.timeLimit);
      const changed = await cli.coppice.projects.limit(ref, body, { signal });
      cli.out.result(
        changed,
        () =>
          `cap: ${changed.cap_usd === null ? 'none' : `$${changed.cap_usd}`}, ends: ${changed.ends_at ?? 'never'}`,
      );
    });
  verb(project, 'eval', 'Show criteria, recommendation, and what would be promoted')
    .argument('<project>', 'id or name')
    .option('--council', 'ask several judges too; their cost is the project’s')
    .option('--model <model>', 'the model that the judges ask')
    .action(async (ref: string, { council, model }: { council?: boolean; model?: string }) => {
      const evaluation = await cli.coppice.projects.evaluate(ref, {
        council: council ?? false,
        model,
        signal,
      });
      cli.out.result(evaluation, () => evaluationText(cli.out, evaluation));
    });
  verb(project, 'promote', 'Promote what passed to production')
    .argument('<project>', 'id or name')
    .option('-y, --yes', 'do not ask')
    .option('--digest <digest>', 'confirm exactly this evaluation')
    .action(async (ref: string, options: { yes?: boolean; digest?: string }) => {
      const evaluation = await cli.coppice.projects.evaluate(ref, { signal });
      const { status } = await cli.coppice.projects.get(ref, { signal });
      if (status !== 'promoted')
        await confirmPromotion(cli, evaluation, options.yes === true || options.digest !== undefined);
      const promotion = await cli.coppice.projects.promote(ref, options.digest ?? evaluation.digest, {
        signal,
      });
      cli.out.result(promotion, () =>
        [
          promotion.fresh
            ? `promoted ${promotion.agents.length} agents`
            : 'it was promoted before; nothing changed',
          ...promotion.agents.map(({ id, lane, stage }) => `${id}  lane ${lane}, ${stage}`),
        ].join('\n'),
      );
    });
  verb(project, 'production', 'List the agents in production').action(async () => {
    const agents = await cli.coppice.production.list({ signal });
    cli.out.result(agents, () => productionTable(cli.out, agents));
  });
  verb(project, 'run', 'Run the lane of an agent in production once, now')
    .argument('<agent>', 'id or lane')
    .action(async (ref: string) => {
      const runs = await cli.coppice.production.run(ref, { signal });
      cli.out.result(runs, () => runs.map(({ id, agent }) => `${id}  ${agent}`).join('\n'));
    });
  verb(project, 'rollback', 'Roll an agent back at once: the version before it takes over again')
    .argument('<agent>', 'id or lane')
    .option('--reason <text>', 'why')
    .action(async (ref: string, { reason }: { reason?: string }) => {
      const agent = await cli.coppice.production.rollBack(ref, reason, { signal });
      cli.out.result(
        agent,
        () => `${agent.id} is rolled back; ${agent.rollback?.replaced_by ?? 'nobody'} works now`,
      );
    });
  verb(project, 'compare', 'Compare two projects')
    .argument('<a>', 'id or name')
    .argument('<b>', 'id or name')
    .action(async (a: string, b: string) => {
      const comparison = await cli.coppice.projects.compare(a, b, { signal });
      cli.out.result(comparison, () => comparisonText(cli.out, comparison));
    });
  verb(project, 'experiment', 'Start an experiment from a file, or look at one')
    .argument('<project>', 'id or name')
    .argument('<what>', 'a JSON file (- for standard input), or the number of an experiment')
    .action(async (ref: string, what: string) => {
      const { projects } = cli.coppice;
      const found = /^\d+$/.test(what)
        ? await projects.experiment(ref, parseWhole(what), { signal })
        : await projects.startExperiment(ref, readDocument(what) as RouteBody<'startExperiment'>);
      cli.out.result(found, () => experimentText(cli.out, found));
    });
  verb(project, 'score', 'Score a trial by hand')
    .argument('<project>', 'id or name')
    .argument('<experiment>', 'its number', parseWhole)
    .argument('<trial>', 'its number', parseWhole)
    .argument('<verdict>', 'pass or fail')
    .option('--reason <text>', 'why', '')
    .action(
      async (
        ref: string,
        experiment: number,
        trial: number,
        verdict: string,
        { reason }: { reason: string },
      ) => {
        if (verdict !== 'pass' && verdict !== 'fail')
          throw new CoppiceError('invalid_argument', `${verdict} is neither pass nor fail`);
        const body = { trial, passed: verdict === 'pass', reason };
        const found = await cli.coppice.projects.score(ref, experiment, body, { signal });
        cli.out.result(found, () => experimentText(cli.out, found));
      },
    );
  verb(project, 'snapshot', 'Snapshot a project: its data, agents, workspace and sandboxes')
    .argument('<project>', 'id or name')
    .argument('<name>', 'what to call it')
    .action(async (ref: string, name: string) => {
      const taken = await cli.coppice.projects.snapshot(ref, name, { signal });
      cli.out.result(taken, () => String(taken.id));
    });
  verb(project, 'snapshots', 'List the snapshots of a project')
    .argument('<project>', 'id or name')
    .action(async (ref: string) => {
      const list = await cli.coppice.projects.snapshots(ref, { signal });
      cli.out.result(list, () =>
        cli.out.table(
          ['ID', 'NAME', 'AT', 'AGENTS', 'SANDBOXES'],
          list.map(({ id, name, at, agents, sandboxes }) => [
            String(id),
            name,
            at,
            String(agents),
            String(sandboxes),
          ]),
          'No snapshots.',
        ),
      );
    });
  verb(project, 'restore', 'Restore a project from a snapshot; the ledger stays')
    .argument('<project>', 'id or name')
    .argument('<snapshot>', 'its number', parseWhole)
    .action(async (ref: string, snapshot: number) => {
      const found = await cli.coppice.projects.restore(ref, snapshot, { signal });
      cli.out.result(found, () => detailText(cli.out, found));
    });
  verb(project, 'types', 'List agent types, or show the schema of one')
    .argument('[type]', 'its name')
    .action(async (name: string | undefined) => {
      const types = await cli.coppice.projects.types({ signal });
      const found = types.find((type) => type.name === name);
      if (name !== undefined && found === undefined)
        throw new CoppiceError('not_found', `there is no agent type ${name}`, {
          hint: 'List them: coppice project types',
        });
      cli.out.result(found ?? types, () =>
        found === undefined
          ? cli.out.table(
              ['TYPE', 'VERSION', 'MODEL', 'DESCRIPTION'],
              types.map((type) => [
                type.name,
                String(type.version),
                type.needs_model ? 'any' : 'none',
                type.description,
              ]),
              'There are none.',
            )
          : JSON.stringify(found.parameters, null, 2),
      );
    });
  const news = verb(project, 'news', 'Choose where news of projects go: signed webhooks, or mail');
  verb(news, 'add', 'Add a webhook or a mail address; the secret of a webhook is shown once')
    .argument('<url>', 'a URL, or mailto: and an address')
    .action(async (url: string) => {
      const added = await cli.coppice.production.addNewsTarget({ url, signal });
      cli.out.result(added, () => added.secret ?? `news go to ${url}`);
    });
  verb(news, 'ls', 'List webhooks and mail addresses').action(async () => {
    const list = await cli.coppice.production.newsTargets({ signal });
    cli.out.result(list, () =>
      cli.out.table(
        ['URL', 'SINCE'],
        list.map(({ url, created_at }) => [url, created_at]),
        'None.',
      ),
    );
  });
  verb(news, 'rm', 'Remove a webhook or a mail address')
    .argument('<url>')
    .action(async (url: string) => {
      await cli.coppice.production.removeNewsTarget(url, { signal });
      cli.out.result({ removed: url }, () => `removed ${url}`);
    });
  verb(project, 'kill', 'End a project and its agents')
    .argument('<project>', 'id or name')
    .option('--delete', 'also remove everything of it but the ledger')
    .action(async (ref: string, options: { delete?: boolean }) => {
      const ended = await cli.coppice.projects.kill(ref, { delete: options.delete ?? false, signal });
      cli.out.result(ended, () => `${ended.id} is ${options.delete ? 'deleted' : ended.status}`);
    });
};
