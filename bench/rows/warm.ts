import { eventually, type RunningDaemon } from '@coppice/testkit';
import { defineRow, medianRatio } from '../harness/row.ts';
import { atMost } from '../harness/target.ts';
import { bwrapCommand } from '../peers/bwrap.ts';
import { firstOutputMs, outputCommand } from './first-output.ts';

const poolSize = 2;

const poolIsFull = async (daemon: RunningDaemon): Promise<boolean> =>
  new RegExp(`^coppice_warm_sandboxes(?:\\{.*\\})? ${poolSize}$`, 'm').test(await daemon.client.metrics());

export const warm = defineRow({
  name: 'warm',
  title: 'create → first output of a command, from the warm pool',
  targets: { bwrap: atMost(0.7) },
  run: async (context) => {
    const daemon = await context.daemon({ warm_pool: poolSize });
    const root = await context.peerRoot();
    const measured = await context.interleave(
      {
        ours: async () => {
          await eventually('the pool is full', () => poolIsFull(daemon));
          return firstOutputMs(daemon, 'pool');
        },
        bwrap: async () => {
          // The refill is Coppice's own work, so that the peer must not run beside it.
          await eventually('the pool is full', () => poolIsFull(daemon));
          return context.shell.time(bwrapCommand(root, ...outputCommand), 'first line');
        },
      },
      { rounds: 100, budgetS: 30 },
    );
    return { bwrap: medianRatio(measured.ours, measured.bwrap) };
  },
});
