import { defineRow, medianRatio } from '../harness/row.ts';
import { atMost } from '../harness/target.ts';
import { forksToFirstExecMs } from './forks-to-first-exec.ts';
import { memorySandbox } from './memory-sandbox.ts';

export const memoryForks8 = defineRow({
  name: 'memory-forks8',
  title: 'eight forks of one checkpoint of 256 MiB, each having answered an exec',
  targets: { 'one fork': atMost(5) },
  run: async (context) => {
    const daemon = await context.daemon();
    const source = await memorySandbox(context, daemon);
    const { id } = await source.checkpoint();
    const measured = await context.interleave(
      {
        eight: () => forksToFirstExecMs(daemon, id, context.amount(8, 2)),
        one: () => forksToFirstExecMs(daemon, id, 1),
      },
      { rounds: 6, budgetS: 30 },
    );
    return { 'one fork': medianRatio(measured.eight, measured.one) };
  },
});
