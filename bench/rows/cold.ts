import { defineRow, medianRatio } from '../harness/row.ts';
import { atMost } from '../harness/target.ts';
import { bwrapCommand } from '../peers/bwrap.ts';
import { Runc } from '../peers/runc.ts';
import { firstOutputMs, outputCommand } from './first-output.ts';

export const cold = defineRow({
  name: 'cold',
  title: 'create → first output of a command, cold',
  targets: { bwrap: atMost(2), 'runc run': atMost(0.5) },
  run: async (context) => {
    const daemon = await context.daemon();
    const root = await context.peerRoot();
    const runc = new Runc(context, root);
    const bundle = await runc.bundle(...outputCommand);
    const measured = await context.interleave(
      {
        ours: () => firstOutputMs(daemon, 'cold'),
        bwrap: () => context.shell.time(bwrapCommand(root, ...outputCommand), 'first line'),
        runc: () => context.shell.time(runc.runCommand(bundle), 'first line'),
      },
      { rounds: 100, budgetS: 30 },
    );
    return {
      bwrap: medianRatio(measured.ours, measured.bwrap),
      'runc run': medianRatio(measured.ours, measured.runc),
    };
  },
});
