import { readdirSync, readFileSync } from 'node:fs';
import type { RunningDaemon } from '@coppice/testkit';
import { defineRow, medianRatio } from '../harness/row.ts';
import { summarize } from '../harness/summary.ts';
import { atMost } from '../harness/target.ts';
import { bwrapCommand } from '../peers/bwrap.ts';

/** What a daemon holds: its memory, its open files, and its mounts. */
const holdings = ({ pid, home }: RunningDaemon) => ({
  residentKb: Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]),
  files: readdirSync(`/proc/${pid}/fd`).length,
  mounts: readFileSync(`/proc/${pid}/mountinfo`, 'latin1').split(home).length,
});

export const churn = defineRow({
  name: 'churn',
  title: '1,000 sandboxes created and destroyed in a row',
  targets: {
    // Equal, with a tenth for noise. Both by a bwrap beside each: the machine itself is not equally fast in two different minutes.
    'time of the first hundred': atMost(1.1),
    // A heap that has not been collected yet is no leak; one that holds a thousand sandboxes is far above this.
    'memory of the daemon after the first hundred': atMost(1.5),
    // Kept connections come and go; nine hundred sandboxes that leave something behind do not fit in here.
    'open files of the daemon that were added': atMost(8, ''),
    'mounts that were added': atMost(0, ''),
  },
  run: async (context) => {
    const count = context.amount(1000, 8);
    const part = count / 10 > 1 ? Math.floor(count / 10) : 2;
    const daemon = await context.daemon();
    const root = await context.peerRoot();
    const once = async (): Promise<number> => {
      context.signal.throwIfAborted();
      const startedMs = performance.now();
      const sandbox = await daemon.client.sandboxes.create();
      await sandbox.destroy();
      return performance.now() - startedMs;
    };
    // Compiles what it runs; belongs to no hundred.
    for (let index = 0; index < context.amount(20, 1); index += 1) await once();
    const withPeer = async () => {
      const ours: number[] = [];
      const peer: number[] = [];
      while (ours.length < part) {
        ours.push(await once());
        peer.push(await context.shell.time(bwrapCommand(root, '/bin/true')));
      }
      return { ours: summarize(ours), peer: summarize(peer) };
    };
    const first = await withPeer();
    const before = holdings(daemon);
    for (let index = part; index < count - part; index += 1) await once();
    const last = await withPeer();
    const after = holdings(daemon);
    const { value } = medianRatio(last.ours, first.ours);
    return {
      'time of the first hundred': {
        value: value / medianRatio(last.peer, first.peer).value,
        ours: last.ours,
        peer: first.ours,
      },
      'memory of the daemon after the first hundred': { value: after.residentKb / before.residentKb },
      'open files of the daemon that were added': { value: Math.max(0, after.files - before.files) },
      'mounts that were added': { value: Math.max(0, after.mounts - before.mounts) },
    };
  },
});
