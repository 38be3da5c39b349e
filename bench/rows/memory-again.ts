import { elapsedMs } from '../harness/interleave.ts';
import { defineRow, medianRatio } from '../harness/row.ts';
import { summarize } from '../harness/summary.ts';
import { atMost } from '../harness/target.ts';
import { memorySandbox } from './memory-sandbox.ts';

export const memoryAgain = defineRow({
  name: 'memory-again',
  title: 'second checkpoint of an unchanged sandbox of 256 MiB',
  // No slower, with a tenth for noise.
  targets: { 'the first': atMost(1.1) },
  run: async (context) => {
    const daemon = await context.daemon();
    const source = await memorySandbox(context, daemon);
    const { id } = await source.checkpoint();
    const first: number[] = [];
    const second: number[] = [];
    for (let round = 0; round < context.amount(5, 1); round += 1) {
      context.signal.throwIfAborted();
      const [fork] = (await daemon.client.snapshots.fork(id)).sandboxes;
      await fork!.exec(['true']);
      for (const samples of [first, second]) samples.push(await elapsedMs(() => fork!.checkpoint()));
      await fork!.destroy();
    }
    return { 'the first': medianRatio(summarize(second), summarize(first)) };
  },
});
