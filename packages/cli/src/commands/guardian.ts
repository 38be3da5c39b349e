import { printableName } from '@coppice/console';
import type { Intervention, RunHealth } from '@coppice/protocol';
import { Option } from 'commander';
import { parseWhole } from '../args/number.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

type Kind = Intervention['kind'];
const kinds: Kind[] = ['remind', 'refocus', 'constrain', 'pause', 'stop', 'rewind'];

const line = (one: Intervention): string[] => [
  String(one.id),
  one.kind,
  one.rule,
  one.authority,
  one.state,
  printableName(one.detail),
];

const healthRow = (run: RunHealth): string[] => [
  run.name,
  run.quarantine === null ? run.health : 'quarantine',
  String(run.missed),
  String(run.restarts),
  printableName(run.quarantine?.reason ?? run.reason),
];

export const define: DefineCommand = (program, cli) => {
  const guardian = verb(program, 'guardian', 'Watch runs by rules, intervene, and undo interventions');
  const { signal } = cli;

  verb(guardian, 'status', 'Show the rules, and errors in their file').action(async () => {
    const status = await cli.coppice.guardian.status({ signal });
    const rows = status.rules.map((rule) => [rule.name, rule.when.kind, rule.action]);
    cli.out.result(status, () =>
      [
        ...(status.trouble === null ? [] : [`the file cannot be used: ${printableName(status.trouble)}`]),
        cli.out.table(['RULE', 'WHEN', 'ACTION'], rows, 'No rules: put them into guardian.json of the home.'),
        `judge: ${status.judge ?? 'none'}`,
      ].join('\n'),
    );
  });

  verb(guardian, 'dry-run', 'Replay a recorded run and show what the guardian would have done')
    .argument('<run>', 'name or id')
    .addHelpText('after', examples('coppice guardian dry-run fix-1'))
    .action(async (run: string) => {
      const result = await cli.coppice.guardian.dryRun(run, { signal });
      const rows = result.findings.map((each) => [
        String(each.seq),
        each.rule,
        each.would,
        printableName(each.detail),
      ]);
      cli.out.result(result, () =>
        cli.out.table(['EVENT', 'RULE', 'WOULD', 'WHY'], rows, `Nothing in ${result.events} events.`),
      );
    });

  verb(guardian, 'judge', 'Have the configured model score a run against its task')
    .argument('<run>', 'name or id')
    .action(async (run: string) => {
      const judged = await cli.coppice.guardian.judge(run, { signal });
      cli.out.result(judged, () =>
        judged.status === 'scored'
          ? `${judged.score}: ${printableName(judged.reason)}`
          : `unavailable: ${printableName(judged.reason)}`,
      );
    });

  verb(guardian, 'intervene', 'Intervene in a run by hand; the intervention is recorded')
    .argument('<run>', 'name or id')
    .addOption(new Option('--kind <kind>', 'how').choices(kinds).makeOptionMandatory())
    .requiredOption('--reason <text>', 'why')
    .option('--message <text>', 'what the agent is told')
    .option('--to <step>', 'of a rewind (default: the last step)', parseWhole)
    .action(
      async (
        run: string,
        options: {
          readonly kind: Kind;
          readonly reason: string;
          readonly message?: string;
          readonly to?: number;
        },
      ) => {
        const done = await cli.coppice.guardian.intervene(run, { ...options }, { signal });
        cli.out.result(done, () => `${done.id}: ${done.kind} is ${done.state}`);
      },
    );

  verb(guardian, 'ls', 'List the interventions in a run, and who made them')
    .argument('<run>', 'name or id')
    .action(async (run: string) => {
      const found = await cli.coppice.guardian.interventions(run, { signal });
      cli.out.result(found, () =>
        cli.out.table(
          ['ID', 'KIND', 'RULE', 'AUTHORITY', 'STATE', 'WHY'],
          found.map(line),
          'No interventions.',
        ),
      );
    });

  verb(guardian, 'revert', 'Undo an intervention: the run returns to the step before it')
    .argument('<id>', 'of the intervention', parseWhole)
    .action(async (id: number) => {
      const reverted = await cli.coppice.guardian.revert(id, { signal });
      cli.out.result(reverted, () => `${id}: ${reverted.state}, back to step ${reverted.before.step}`);
    });

  verb(guardian, 'conductor', 'Find runs that do the same work or edit the same files').action(async () => {
    const found = await cli.coppice.guardian.conductor({ signal });
    cli.out.result(found, () =>
      [
        ...found.duplicates.map(({ runs, why }) => `${runs.join(' and ')}: ${printableName(why)}`),
        ...found.conflicts.map(
          ({ runs, files }) => `${runs.join(' and ')} both edited ${files.map(printableName).join(', ')}`,
        ),
        `${found.runs.length} at work, ${found.duplicates.length} duplicates, ${found.conflicts.length} conflicts`,
      ].join('\n'),
    );
  });

  verb(guardian, 'health', 'Show the health of active runs').action(async () => {
    const found = await cli.coppice.guardian.health({ signal });
    cli.out.result(found, () =>
      cli.out.table(['RUN', 'HEALTH', 'MISSED', 'RESTARTS', 'WHY'], found.map(healthRow), 'No runs at work.'),
    );
  });
  verb(guardian, 'quarantine', 'Cut the network of a run, freeze it, and keep evidence')
    .argument('<run>', 'name or id')
    .requiredOption('--reason <text>', 'why')
    .action(async (run: string, { reason }: { readonly reason: string }) => {
      const found = await cli.out.during('keeping evidence', () =>
        cli.coppice.guardian.quarantine(run, reason, { signal }),
      );
      cli.out.result(found, () => `${found.name} is in quarantine; evidence: ${found.quarantine?.evidence}`);
    });
  verb(guardian, 'clear', 'Let a run out of quarantine')
    .argument('<run>', 'name or id')
    .requiredOption('--reason <text>', 'why it may go on')
    .action(async (run: string, { reason }: { readonly reason: string }) => {
      const found = await cli.coppice.guardian.clear(run, reason, { signal });
      cli.out.result(found, () => `${found.name} goes on`);
    });
};
