import { elapsedMs } from '../harness/interleave.ts';
import { defineRow } from '../harness/row.ts';
import { summarize } from '../harness/summary.ts';
import { atMost } from '../harness/target.ts';

const sandboxCount = 10;

export const restart = defineRow({
  name: 'restart',
  title: 'a daemon is killed and started again → an exec in a sandbox that ran on',
  targets: { 'p95 of all': atMost(1000, 'ms') },
  run: async (context) => {
    const daemon = await context.daemon();
    const created = Array.from({ length: sandboxCount }, () => daemon.client.sandboxes.create());
    const [sandbox] = await Promise.all(created);
    const samples: number[] = [];
    for (let round = context.amount(20, 1); round > 0; round -= 1) {
      context.signal.throwIfAborted();
      await daemon.kill('SIGKILL');
      samples.push(
        await elapsedMs(async () => {
          await daemon.restart();
          await sandbox!.exec(['true']);
        }),
      );
    }
    const ours = summarize(samples);
    return { 'p95 of all': { value: ours.p95, ours } };
  },
});
