import { parseConfig } from '../projects/config-argument.ts';
import { confirmPromotion } from '../projects/confirm-promotion.ts';
import { detailText, evaluationText, projectTable, summaryText } from '../projects/project-text.ts';
import { type DefineCommand, verb } from '../verb.ts';

/** The words of NovaOS for projects: `nova sandbox …`. */
export const define: DefineCommand = (program, cli) => {
  const nova = verb(program, 'nova', 'Projects in the words of NovaOS: nova sandbox …');
  const sandbox = verb(nova, 'sandbox', 'Try ideas without risk, and promote the winners');
  const { signal } = cli;

  verb(sandbox, 'create', 'Create a sandbox project')
    .argument('<name>')
    .option('--description <text>', 'what is tested', '')
    .action(async (name: string, { description }: { description: string }) => {
      const made = await cli.coppice.projects.create({ name, description, signal });
      cli.out.result(made, () =>
        [
          `✓ Created sandbox project: ${made.name}`,
          `  Project ID: ${made.id}`,
          `  Workspace: ${made.workspace}`,
        ].join('\n'),
      );
    });
  verb(sandbox, 'deploy', 'Deploy an agent in a project')
    .argument('<project_id>')
    .argument('<agent_type>')
    .option('--name <name>', 'what the agent is called')
    .option('--config <config>', 'JSON, or key=value', parseConfig)
    .action(
      async (
        ref: string,
        type: string,
        { name, config }: { name?: string; config?: Record<string, never> },
      ) => {
        const agent = await cli.coppice.projects.deploy(ref, { type, name, config, signal });
        cli.out.result(agent, () =>
          [
            `✓ Deployed agent: ${agent.name}`,
            `  Agent ID: ${agent.id}`,
            `  Type: ${agent.type}`,
            `  Token budget: ${agent.token_budget}`,
          ].join('\n'),
        );
      },
    );
  verb(sandbox, 'list', 'List all sandbox projects with metrics').action(async () => {
    const list = await cli.coppice.projects.list({ signal });
    cli.out.result(list, () => projectTable(cli.out, list));
  });
  verb(sandbox, 'status', 'All sandbox projects and overall statistics').action(async () => {
    const [summary, list] = [
      await cli.coppice.projects.summary({ signal }),
      await cli.coppice.projects.list({ signal }),
    ];
    cli.out.result(
      { summary, projects: list },
      () => `${projectTable(cli.out, list)}\n\n${summaryText(cli.out, summary)}`,
    );
  });
  verb(sandbox, 'project', 'Details of a project')
    .argument('<project_id>')
    .action(async (ref: string) => {
      const found = await cli.coppice.projects.get(ref, { signal });
      cli.out.result(found, () => detailText(cli.out, found));
    });
  verb(sandbox, 'eval', 'Evaluate a project')
    .argument('<project_id>')
    .option('--council', 'ask several judges too')
    .action(async (ref: string, { council }: { council?: boolean }) => {
      const evaluation = await cli.coppice.projects.evaluate(ref, { council: council ?? false, signal });
      cli.out.result(evaluation, () => evaluationText(cli.out, evaluation));
    });
  verb(sandbox, 'promote', 'Promote a project to production')
    .argument('<project_id>')
    .option('-y, --yes', 'do not ask')
    .action(async (ref: string, { yes }: { yes?: boolean }) => {
      const evaluation = await cli.coppice.projects.evaluate(ref, { signal });
      const before = await cli.coppice.projects.get(ref, { signal });
      if (before.status !== 'promoted') await confirmPromotion(cli, evaluation, yes === true);
      const promotion = await cli.coppice.projects.promote(ref, evaluation.digest, { signal });
      cli.out.result(promotion, () =>
        [
          promotion.fresh ? `✓ Promoted project: ${before.name}` : `✓ Promoted before: ${before.name}`,
          `  Agents migrated: ${promotion.agents.length}`,
          ...promotion.agents.map(({ id, name }) => `  ${name}: ${id}`),
        ].join('\n'),
      );
    });
  verb(sandbox, 'kill', 'Kill a project')
    .argument('<project_id>')
    .option('--delete', 'also remove the workspace and every trace but the ledger')
    .action(async (ref: string, options: { delete?: boolean }) => {
      const ended = await cli.coppice.projects.kill(ref, { delete: options.delete ?? false, signal });
      cli.out.result(ended, () => `✓ ${options.delete ? 'Deleted' : 'Killed'} project: ${ended.name}`);
    });
};
