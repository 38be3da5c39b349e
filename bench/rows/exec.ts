import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { elapsedMs } from '../harness/interleave.ts';
import { defineRow, medianRatio } from '../harness/row.ts';
import { atMost } from '../harness/target.ts';
import { Runc } from '../peers/runc.ts';

export const exec = defineRow({
  name: 'exec',
  title: 'exec round trip through the SDK on a running sandbox',
  targets: { 'runc exec': atMost(0.1), nsenter: atMost(0.6) },
  run: async (context) => {
    const daemon = await context.daemon();
    const sandbox = await daemon.client.sandboxes.create();
    const runc = new Runc(context, await context.peerRoot());
    const container = await runc.start(await runc.bundle('sleep', '1000000'));
    const { init } = JSON.parse(readFileSync(join(daemon.home, 'run', sandbox.id, 'machine.json'), 'utf8'));
    const nsenter = ['nsenter', '--target', String(init.pid), '--all', '--root', '--wd', '/bin/true'];
    const measured = await context.interleave(
      {
        ours: () => elapsedMs(() => sandbox.exec(['/bin/true'])),
        runc: () => context.shell.time(runc.execCommand(container, '/bin/true')),
        nsenter: () => context.shell.time(nsenter),
      },
      // In turns of ten, as whoever works in a sandbox calls again and again; each peer has the same.
      { rounds: 20, turn: 10, budgetS: 30 },
    );
    return {
      'runc exec': medianRatio(measured.ours, measured.runc),
      nsenter: medianRatio(measured.ours, measured.nsenter),
    };
  },
});
