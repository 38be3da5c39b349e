import { execFileSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import type { MachineSpec } from '@coppice/runtime';
import { DriverWorkbench, mountAt, shellIn, tinyImage } from '@coppice/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { makeGvisorDriver } from '../../packages/runtime/test/gvisor/make-gvisor-driver.ts';
import { HostCanary } from './host-canary.ts';
import { makeWithCriu, whyNoCriu } from './with-criu.ts';

const hasRunsc = (process.env.PATH ?? '').split(':').some((directory) => existsSync(`${directory}/runsc`));
/** Some bytes all over the file, other ones in each round. */
const damageAllOver = (image: string, round: number): void => {
  const bytes = readFileSync(image);
  for (let hit = 1; hit <= 20; hit++) {
    const at = Math.floor((bytes.length * hit) / 21) + round;
    if (at < bytes.length) bytes[at]! ^= 0xff;
  }
  writeFileSync(image, bytes);
};

/** One whole instruction of the last filter: CRIU finds out when the processes are there already, and may wait for them for good. */
const damageFilter = (image: string): void => {
  const bytes = readFileSync(image);
  for (let at = bytes.length - 64; at < bytes.length - 56; at++) bytes[at]! ^= 0xff;
  writeFileSync(image, bytes);
};

describe.each([
  {
    driver: 'container',
    make: makeWithCriu,
    missing: whyNoCriu,
  },
  { driver: 'gvisor', make: makeGvisorDriver, missing: hasRunsc ? undefined : 'this machine has no runsc' },
])('memory that the driver $driver brings back', ({ driver, make, missing }) => {
  let bench: DriverWorkbench;
  let canary: HostCanary;
  let memoryDir: string;
  beforeEach(async ({ skip }) => {
    if (missing !== undefined) skip(missing);
    canary = new HostCanary('/var/tmp');
    bench = await DriverWorkbench.open(await tinyImage(), make);
    memoryDir = join(bench.home, 'memory');
  });
  afterEach(async () => {
    await bench?.[Symbol.asyncDispose]();
    canary?.[Symbol.dispose]();
  });

  /** Takes a checkpoint of a sandbox that works in /tmp and /workspace; what is restored gets a copy of its disk. */
  const keep = async (): Promise<MachineSpec> => {
    const workspaceDir = join(bench.home, 'given');
    mkdirSync(workspaceDir);
    const first = bench.spec({ mounts: [mountAt(workspaceDir)] });
    const source = await bench.driver.start(first);
    await source.guest.startJob({
      argv: [
        '/bin/sh',
        '-c',
        'cd /tmp; while :; do date=$((date + 1)); echo $date > /workspace/counted; sleep 0.05; done',
      ],
    });
    await shellIn(source.guest, 'echo mine > /tmp/own; echo mine > /run/own');
    const second = bench.spec({ mounts: [mountAt(workspaceDir)] });
    await source.checkpoint(memoryDir, async () => {
      execFileSync('cp', ['--archive', join(first.diskDir, 'upper'), second.diskDir]);
    });
    await source.stop(0);
    return second;
  };

  test('leads to nothing of the host through links that its disk got meanwhile', async () => {
    const spec = await keep();
    const places = ['proc', 'sys', 'dev', 'run', 'workspace', ...(driver === 'gvisor' ? ['tmp'] : [])];
    for (const place of places) {
      rmSync(join(spec.diskDir, 'upper', place), { recursive: true, force: true });
      symlinkSync(canary.directory, join(spec.diskDir, 'upper', place));
    }
    const restored = await bench.driver.restore(spec, memoryDir).catch((error: Error) => error);
    if (restored instanceof Error) expect(bench.remains(spec.id)).toEqual([]);
    else {
      const script = 'for d in /tmp /run /workspace /dev/shm; do cat $d/secret; echo x > $d/planted; done';
      expect((await shellIn(restored.guest, script)).stdout).toBe('');
    }
    expect(canary.damage()).toEqual([]);
  });

  test('that is damaged either goes on or is refused, and leaves nothing', async () => {
    const spec = await keep();
    const names = readdirSync(memoryDir);
    // CRIU is given what it refuses, and no more: it is not made to withstand its images.
    const targets = driver === 'gvisor' ? names.flatMap((name) => [name, name, name]) : ['seccomp.img'];
    expect(names).toEqual(expect.arrayContaining(targets));
    for (const [round, name] of targets.entries()) {
      const damaged = `${memoryDir}-${round}`;
      cpSync(memoryDir, damaged, { recursive: true });
      (driver === 'gvisor' ? damageAllOver : damageFilter)(join(damaged, name), round);
      const restored = await bench.driver.restore(spec, damaged).catch((error: Error) => error);
      if (!(restored instanceof Error)) await restored.stop(0);
      else if (driver === 'container') expect(restored.message).toContain('CRIU ended');
      expect(bench.remains(spec.id), name).toEqual([]);
    }
    expect(canary.damage()).toEqual([]);
    const { guest } = await bench.driver.restore(spec, memoryDir);
    expect((await shellIn(guest, 'cat /tmp/own /run/own')).stdout).toBe('mine\nmine\n');
  });
});
