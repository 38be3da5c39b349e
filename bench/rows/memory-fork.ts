import { join } from 'node:path';
import { elapsedMs } from '../harness/interleave.ts';
import { defineRow, medianRatio } from '../harness/row.ts';
import { atMost } from '../harness/target.ts';
import { BareRunsc } from '../peers/bare-runsc.ts';
import { forksToFirstExecMs } from './forks-to-first-exec.ts';
import { heldMb, memorySandbox } from './memory-sandbox.ts';

export const memoryFork = defineRow({
  name: 'memory-fork',
  title: 'fork of a checkpoint of 256 MiB to first exec, and wake on a request',
  targets: { 'fork against runsc restore': atMost(1.3), 'wake against runsc restore': atMost(1.3) },
  run: async (context) => {
    const bare = await BareRunsc.make(context);
    const daemon = await context.daemon();
    const source = await memorySandbox(context, daemon);
    const { id } = await source.checkpoint();
    const holder = await bare.startHolder(heldMb(context));
    const imageDir = join(daemon.home, 'pool/bench');
    await bare.checkpointMs(holder, imageDir);
    // Each measurement stands beside one other sandbox that holds memory and does nothing.
    const measured = await context.interleave(
      {
        fork: () => forksToFirstExecMs(daemon, id, 1),
        bare: () => bare.restoreMs(imageDir),
        wake: async () => {
          await source.pause();
          return elapsedMs(() => source.exec(['true']));
        },
      },
      { rounds: 8, budgetS: 30 },
    );
    return {
      'fork against runsc restore': medianRatio(measured.fork, measured.bare),
      'wake against runsc restore': medianRatio(measured.wake, measured.bare),
    };
  },
});
