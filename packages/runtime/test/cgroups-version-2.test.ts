import { execFile } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';

const kernel = fileURLToPath(new URL('../../../.tools/uml/usr/bin/linux.uml', import.meta.url));
const program = fileURLToPath(new URL('./cgroups/version-2-alone.ts', import.meta.url));

/** Boots it as a process on the files of this machine, which it cannot write to; returns all that it said. */
const boot = async (directory: string, command: string): Promise<string> => {
  const init = join(directory, 'init');
  writeFileSync(
    init,
    `#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc none /proc && mount -t sysfs none /sys && mount -t cgroup2 none /sys/fs/cgroup
${command}
echo o > /proc/sysrq-trigger
sleep 60
`,
  );
  chmodSync(init, 0o755);
  const root = ['rootfstype=hostfs', 'rootflags=/', 'ro', `init=${init}`];
  const own = [`uml_dir=${directory}`, 'mem=512M', 'cgroup_no_v1=all', 'quiet', 'con=null', 'con0=null,fd:1'];
  const { stdout } = await promisify(execFile)(kernel, [...root, ...own], {
    env: { TMPDIR: directory },
    maxBuffer: 16 << 20,
    timeout: 300_000,
  });
  return stdout;
};

test('on a kernel with cgroups of version 2 alone limits bite, can be changed, and a group is frozen and killed', async ({
  skip,
}) => {
  if (!existsSync(kernel)) skip('user-mode Linux could not be had');
  const directory = mkdtempSync(join(tmpdir(), 'coppice-uml-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const said = await boot(directory, `'${process.execPath}' '${program}' 2>&1`);
  const result = /^\{.*\}$/m.exec(said.replaceAll('\r', ''))?.[0];
  expect(result, said).toBeDefined();
  expect(JSON.parse(result!)).toEqual({
    layout: 'cgroups version 2',
    set: ['50000 100000', String(64 << 20), '0', '8'],
    oomKills: 1,
    frozen: 1,
    used: { memory: true, pids: 1 },
    changed: ['200000 100000', String(32 << 20), '0', '16'],
    refusal: 'wrong_state',
    killedBy: 'SIGKILL',
    left: [],
  });
});
