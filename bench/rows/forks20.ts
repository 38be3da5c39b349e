import { defineRow, medianRatio } from '../harness/row.ts';
import { atMost } from '../harness/target.ts';
import { Runc } from '../peers/runc.ts';
import { outputCommand } from './first-output.ts';
import { forksToFirstExecMs } from './forks-to-first-exec.ts';

const count = 20;

export const forks20 = defineRow({
  name: 'forks20',
  title: '20 forks of one snapshot, each having answered an exec',
  targets: { '20 runc run, one after another': atMost(0.3) },
  run: async (context) => {
    const daemon = await context.daemon();
    const source = await daemon.client.sandboxes.create();
    const { id } = await source.snapshot();
    const runc = new Runc(context, await context.peerRoot());
    const bundle = await runc.bundle(...outputCommand);
    const measured = await context.interleave(
      {
        ours: () => forksToFirstExecMs(daemon, id, count),
        runc: async () => {
          let totalMs = 0;
          for (let index = 0; index < count; index += 1)
            totalMs += await context.shell.time(runc.runCommand(bundle));
          return totalMs;
        },
      },
      { rounds: 10, budgetS: 30 },
    );
    return { '20 runc run, one after another': medianRatio(measured.ours, measured.runc) };
  },
});
