import { execFile } from 'node:child_process';
import { statfsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { eventually } from '@coppice/testkit';
import { defineRow } from '../harness/row.ts';
import { atMost } from '../harness/target.ts';
import { memorySandbox } from './memory-sandbox.ts';

const run = promisify(execFile);

export const memorySpace = defineRow({
  name: 'memory-space',
  title: 'disk space of checkpoints of eight forks that have not diverged',
  targets: { 'space of one': atMost(2) },
  run: async (context) => {
    const daemon = await context.daemon();
    const pool = join(daemon.home, 'pool');
    const usedBytes = async (): Promise<number> => {
      // What the first of them frees is counted as free after the second.
      for (let commit = 0; commit < 2; commit += 1) await run('sync', ['--file-system', pool]);
      const { bsize, blocks, bfree } = statfsSync(pool);
      return (blocks - bfree) * bsize;
    };
    const source = await memorySandbox(context, daemon);
    const beforeBytes = await usedBytes();
    const { id } = await source.checkpoint();
    const oneBytes = (await usedBytes()) - beforeBytes;
    const { sandboxes } = await daemon.client.snapshots.fork(id, { count: context.amount(8, 2) });
    for (const fork of sandboxes) {
      context.signal.throwIfAborted();
      await fork.checkpoint();
    }
    // Pages are shared behind the answers; once they are, what is left is counted.
    await eventually('the pages are shared', async () => {
      context.signal.throwIfAborted();
      const snapshots = await daemon.client.snapshots.list();
      return snapshots.every(({ memory_used_bytes: ownBytes }) => ownBytes !== null);
    });
    const allBytes = (await usedBytes()) - beforeBytes - oneBytes;
    return { 'space of one': { value: allBytes / oneBytes } };
  },
});
