import { execFile } from 'node:child_process';
import { existsSync, readdirSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { BenchContext } from '../harness/bench-context.ts';
import { defineRow, medianRatio, NotMeasured } from '../harness/row.ts';
import { atMost } from '../harness/target.ts';
import type { PeerRoot } from '../peers/peer-root.ts';
import { firstOutputMs, outputCommand } from './first-output.ts';

const run = promisify(execFile);
const cgroupName = `coppice-bench-${process.pid}`;

/** With a store of its own, so that the machine's containers and images are not touched. */
const podmanCommand = (context: BenchContext, root: PeerRoot): string[] => [
  ...[
    'podman',
    '--root',
    join(context.directory, 'podman'),
    '--runroot',
    join(context.directory, 'podman-run'),
  ],
  ...['--tmpdir', join(context.directory, 'podman-tmp'), '--runtime', 'runc', '--cgroup-manager', 'cgroupfs'],
  ...['run', '--rm', '--network', 'none', '--cgroup-parent', cgroupName],
  // Its own defaults are above what a machine inside a machine may allow.
  ...['--ulimit', 'nofile=1024:1024', '--ulimit', 'nproc=1024:1024', '--rootfs', root.path, ...outputCommand],
];

export const podman = defineRow({
  name: 'podman',
  title: 'create → first output of a command, cold, against podman run --rm',
  targets: { 'podman run': atMost(0.1) },
  run: async (context) => {
    const daemon = await context.daemon();
    const command = podmanCommand(context, await context.peerRoot());
    context.atEnd(() => removeTraces(context));
    const [program, ...args] = command as [string, ...string[]];
    await run(program, args).catch((error: { readonly stderr?: string; readonly message: string }) => {
      throw new NotMeasured(`podman does not start here: ${(error.stderr || error.message).trim()}`);
    });
    const measured = await context.interleave(
      {
        ours: () => firstOutputMs(daemon, 'cold'),
        podman: () => context.shell.time(command, 'first line'),
      },
      { rounds: 20, budgetS: 30 },
    );
    return { 'podman run': medianRatio(measured.ours, measured.podman) };
  },
});

/** podman keeps its store mounted and its cgroups made. */
const removeTraces = async (context: BenchContext): Promise<void> => {
  await run('umount', ['--lazy', '--quiet', join(context.directory, 'podman/overlay')]).catch(() => {});
  for (const hierarchy of ['', ...readdirSync('/sys/fs/cgroup')])
    removeCgroup(join('/sys/fs/cgroup', hierarchy, cgroupName));
};

const removeCgroup = (directory: string): void => {
  if (!existsSync(directory)) return;
  for (const entry of readdirSync(directory, { withFileTypes: true }))
    if (entry.isDirectory()) removeCgroup(join(directory, entry.name));
  rmdirSync(directory);
};
