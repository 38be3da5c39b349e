import { join } from 'node:path';
import type { Sandbox } from '@coppice/sdk';
import type { RunningDaemon } from '@coppice/testkit';
import { elapsedMs } from '../harness/interleave.ts';
import { defineRow, medianRatio } from '../harness/row.ts';
import { atMost } from '../harness/target.ts';

const filesPerDirectory = 1000;

const sandboxWithFiles = async (daemon: RunningDaemon, count: number): Promise<Sandbox> => {
  const sandbox = await daemon.client.sandboxes.create();
  const fill = `for d in $(seq ${Math.ceil(count / filesPerDirectory)}); do mkdir -p /workspace/$d
    for f in $(seq ${Math.min(count, filesPerDirectory)}); do : > /workspace/$d/$f; done; done`;
  const { exit_code: code, stderr } = await sandbox.exec(fill, { timeout_ms: 300_000 });
  if (code !== 0) throw new Error(`the files could not be made: ${stderr}`);
  return sandbox;
};

export const snapshot = defineRow({
  name: 'snapshot',
  title: 'snapshot, restore, fork of a sandbox with 100,000 files',
  targets: {
    'snapshot with 1,000 files': atMost(1.5),
    'restore with 1,000 files': atMost(1.5),
    'fork with 1,000 files': atMost(1.5),
    'btrfs subvolume snapshot': atMost(2),
  },
  run: async (context) => {
    const daemon = await context.daemon();
    const many = await sandboxWithFiles(daemon, context.amount(100_000, 2_000));
    const few = await sandboxWithFiles(daemon, context.amount(1_000, 20));
    const pool = join(daemon.home, 'pool');
    const bare = ['btrfs', 'subvolume', 'snapshot', '-r', join(pool, 'disks', many.id)];
    const remove = ['btrfs', 'subvolume', 'delete'];
    const base = new Map([
      [many, await many.snapshot()],
      [few, await few.snapshot()],
    ]);
    const fork = async (source: Sandbox): Promise<number> => {
      const startedMs = performance.now();
      const { sandboxes } = await daemon.client.snapshots.fork(base.get(source)!.id);
      const tookMs = performance.now() - startedMs;
      await Promise.all(sandboxes.map((each) => each.destroy()));
      return tookMs;
    };
    const measured = await context.interleave(
      {
        snapshotMany: () => elapsedMs(() => many.snapshot()),
        snapshotFew: () => elapsedMs(() => few.snapshot()),
        snapshotBare: async (round) => {
          const copy = join(pool, `bench-${round}`);
          const tookMs = await context.shell.time([...bare, copy]);
          await context.shell.time([...remove, copy]);
          return tookMs;
        },
        restoreMany: () => elapsedMs(() => many.restore(base.get(many)!.id)),
        restoreFew: () => elapsedMs(() => few.restore(base.get(few)!.id)),
        forkMany: () => fork(many),
        forkFew: () => fork(few),
      },
      { rounds: 40, budgetS: 40 },
    );
    return {
      'snapshot with 1,000 files': medianRatio(measured.snapshotMany, measured.snapshotFew),
      'restore with 1,000 files': medianRatio(measured.restoreMany, measured.restoreFew),
      'fork with 1,000 files': medianRatio(measured.forkMany, measured.forkFew),
      'btrfs subvolume snapshot': medianRatio(measured.snapshotMany, measured.snapshotBare),
    };
  },
});
