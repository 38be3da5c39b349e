import { createHash } from 'node:crypto';
import type { Sandbox } from '@coppice/sdk';
import { elapsedMs } from '../harness/interleave.ts';
import { privateMemoryMb, processesOf } from '../harness/private-memory.ts';
import { defineRow } from '../harness/row.ts';
import { summarize } from '../harness/summary.ts';
import { atMost } from '../harness/target.ts';

export const idle200 = defineRow({
  name: 'idle200',
  title: '200 idle sandboxes on one machine',
  targets: { 'private memory of each': atMost(4, 'MiB'), 'exec p95 with one': atMost(2) },
  run: async (context) => {
    const count = context.amount(200, 5);
    const execs = context.amount(400, 5);
    const daemon = await context.daemon();
    const sandboxes: Sandbox[] = [await daemon.client.sandboxes.create()];
    const samplesMs = async (): Promise<number[]> => {
      const samples: number[] = [];
      // A few more before, which are thrown away: the first calls of a daemon are its slowest.
      for (let index = -context.amount(100, 1); index < execs; index += 1) {
        context.signal.throwIfAborted();
        const sandbox = sandboxes[Math.abs(index) % sandboxes.length]!;
        const tookMs = await elapsedMs(() => sandbox.exec(['true']));
        if (index >= 0) samples.push(tookMs);
      }
      return samples;
    };
    const withOne = summarize(await samplesMs());
    const daemonBeforeMb = privateMemoryMb([daemon.pid]);
    while (sandboxes.length < count) {
      context.signal.throwIfAborted();
      sandboxes.push(await daemon.client.sandboxes.create());
    }
    const homeKey = createHash('sha256').update(daemon.home).digest('hex').slice(0, 8);
    const processes = processesOf(`coppice-${homeKey}/`);
    if (processes.length < count)
      throw new Error(`${processes.length} processes of ${count} sandboxes were found`);
    const sandboxesMb = privateMemoryMb(processes);
    // What the daemon needs for them is part of what they cost.
    const daemonMb = Math.max(0, privateMemoryMb([daemon.pid]) - daemonBeforeMb);
    const withMany = summarize(await samplesMs());
    return {
      'private memory of each': { value: (sandboxesMb + daemonMb) / count },
      'exec p95 with one': { value: withMany.p95 / withOne.p95, ours: withMany, peer: withOne },
    };
  },
});
