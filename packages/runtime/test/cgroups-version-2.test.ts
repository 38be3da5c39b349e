import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { UserModeLinux } from './cgroups/user-mode-linux.ts';

const kernel = fileURLToPath(new URL('../../../.tools/uml/usr/bin/linux.uml', import.meta.url));
const program = fileURLToPath(new URL('./cgroups/version-2-alone.ts', import.meta.url));

test('on a kernel with cgroups of version 2 alone limits bite, can be changed, and a group is frozen and killed', async ({
  skip,
}) => {
  const linux = new UserModeLinux(kernel);
  const reason = await linux.whyNot();
  if (reason !== undefined) skip(reason);
  const said = await linux.run(`'${process.execPath}' '${program}' 2>&1`, 300_000);
  const result = /^\{.*\}$/m.exec(said)?.[0];
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

test.each([
  [
    'panics as it does where the processor has AMX',
    'echo "ptrace set fp regs failed, errno = 14"; echo "Kernel panic - not syncing: Attempted to kill init!"; kill -ABRT $$',
    /errno = 14; Kernel panic/,
    120_000,
  ],
  ['never ends', 'while :; do sleep 1; done', /not in 300 ms/, 300],
  ['is no program for this machine', undefined, /ENOEXEC|EACCES/, 120_000],
])('a user-mode Linux that %s is not used, and why is said', async (_, script, reason, deadlineMs) => {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-kernel-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const file = join(directory, 'linux');
  writeFileSync(file, script === undefined ? 'none' : `#!/bin/sh\n${script}\n`, {
    mode: script === undefined ? 0o644 : 0o755,
  });
  expect(await new UserModeLinux(file).whyNot(deadlineMs)).toMatch(reason);
  expect(await new UserModeLinux(join(directory, 'none')).whyNot()).toContain('could not be had');
});
