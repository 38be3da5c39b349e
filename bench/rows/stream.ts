import { defineRow } from '../harness/row.ts';
import { atLeast } from '../harness/target.ts';

const gibibyte = 2 ** 30;

export const stream = defineRow({
  name: 'stream',
  title: 'streaming 1 GiB of output to a client',
  targets: { 'speed of a pipe between two processes': atLeast(0.3) },
  run: async (context) => {
    const bytes = context.amount(gibibyte, 2 ** 20);
    const daemon = await context.daemon();
    const sandbox = await daemon.client.sandboxes.create();
    const measured = await context.interleave(
      {
        ours: async () => {
          const startedMs = performance.now();
          const output = await sandbox.execStream(['head', '-c', String(bytes), '/dev/zero']);
          let received = 0;
          for await (const { data, release } of output) {
            received += data.length;
            release();
          }
          await output.exit;
          if (received !== bytes) throw new Error(`${received} of ${bytes} bytes came`);
          return performance.now() - startedMs;
        },
        pipe: () => context.shell.timeScript(`head -c ${bytes} /dev/zero | cat`),
      },
      { rounds: 15, budgetS: 40 },
    );
    const { ours, pipe } = measured;
    return {
      'speed of a pipe between two processes': { value: pipe.median / ours.median, ours, peer: pipe },
    };
  },
});
