import { plural } from '@coppice/console';
import { CoppiceError } from '@coppice/protocol/errors';
import { shortId } from '../../index.ts';
import type { JvsCommand } from '../command.ts';
import { sizeText } from '../snapshot-lines.ts';

export const gc: JvsCommand = {
  name: 'gc',
  usage: 'plan [--keep-hours HOURS] [--collect-ancestors] | run [--plan-id ID]',
  summary: 'delete snapshots that no worktree, tag or pin protects: first plan, then run',
  options: [
    {
      name: 'keep-hours',
      kind: 'value',
      value: 'HOURS',
      help: 'plan: keep snapshots of the last HOURS hours (24, or the setting gc_keep_hours)',
    },
    {
      name: 'collect-ancestors',
      kind: 'flag',
      help: 'plan: also delete snapshots that the worktrees grew from',
    },
    { name: 'plan-id', kind: 'value', value: 'ID', help: 'run: this plan instead of the newest' },
  ],
  least: 1,
  most: 1,
  async run(context) {
    const [action] = context.args.words;
    const workspace = await context.open();
    if (action === 'plan') {
      context.args.allowOnly('gc plan', 'keep-hours', 'collect-ancestors');
      const keepHours = context.args.count('keep-hours');
      const plan = await workspace.planCollection({
        ...(keepHours === undefined ? {} : { keepHours }),
        keepAncestors: !context.args.has('collect-ancestors'),
      });
      context.answer(plan, () => [
        `Plan ${plan.plan_id}: ${plural(plan.to_delete.length, 'snapshot')} to delete, about ${sizeText(plan.deletable_bytes)} to free; ${Object.keys(plan.protected).length} protected`,
        ...plan.to_delete.map((id) => `  ${shortId(id)}`),
        `Run it with: jvs gc run --plan-id ${plan.plan_id}`,
      ]);
      return 0;
    }
    if (action === 'run') {
      context.args.allowOnly('gc run', 'plan-id');
      const result = await workspace.runCollection(context.args.value('plan-id'));
      context.answer(result, () => [
        `${plural(result.deleted, 'snapshot')} deleted, ${sizeText(result.freed_bytes)} freed`,
      ]);
      return 0;
    }
    throw new CoppiceError('invalid_argument', `there is no \`jvs gc ${action}\``, {
      hint: 'Use `gc plan`, then `gc run`.',
    });
  },
};
