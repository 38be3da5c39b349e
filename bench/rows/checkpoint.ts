import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { defineRow, medianRatio } from '../harness/row.ts';
import { atMost } from '../harness/target.ts';
import { BareRunsc } from '../peers/bare-runsc.ts';
import { heldMb, memorySandbox } from './memory-sandbox.ts';

export const checkpoint = defineRow({
  name: 'checkpoint',
  title: 'checkpoint of a live process of 256 MiB',
  targets: { 'runsc checkpoint': atMost(1.3) },
  run: async (context) => {
    const bare = await BareRunsc.make(context);
    const daemon = await context.daemon();
    const sandbox = await memorySandbox(context, daemon);
    const holder = await bare.startHolder(heldMb(context));
    const measured = await context.interleave(
      {
        ours: async () => {
          const startedMs = performance.now();
          const { id } = await sandbox.checkpoint();
          const tookMs = performance.now() - startedMs;
          await daemon.client.snapshots.delete(id);
          return tookMs;
        },
        // To the same filesystem.
        bare: async (round) => {
          const imageDir = join(daemon.home, 'pool', `bench-${round}`);
          const tookMs = await bare.checkpointMs(holder, imageDir);
          rmSync(imageDir, { recursive: true });
          return tookMs;
        },
      },
      { rounds: 8, budgetS: 25 },
    );
    return { 'runsc checkpoint': medianRatio(measured.ours, measured.bare) };
  },
});
