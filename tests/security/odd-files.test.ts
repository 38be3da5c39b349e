import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

describe('what a sandbox may have on its disk', () => {
  let daemon: RunningDaemon;
  let sandbox: Sandbox;

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    sandbox = await daemon.client.sandboxes.create({ name: 'odd' });
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  test('no descriptor inside leads to a file of the host, which could be filled through it', async () => {
    const { stdout } = await sandbox.exec('for fd in /proc/[0-9]*/fd/*; do readlink $fd; done');
    const places = stdout.trim().split('\n');
    expect(places.length).toBeGreaterThan(4);
    for (const place of places)
      expect(place).toMatch(
        /^(\/dev\/(null|pts\/ptmx|ptmx)|(pipe|socket):\[\d+\]|anon_inode:.*|\/proc\/.*)$/,
      );
    await sandbox.exec('for fd in 0 1 2; do head -c 100000 /dev/zero > /proc/1/fd/$fd; done');
    const { id } = await sandbox.inspect();
    for (const name of readdirSync(join(daemon.home, 'run', id)))
      expect([name, statSync(join(daemon.home, 'run', id, name)).size < 65_536]).toEqual([name, true]);
  });

  test('times that no calendar has are shown as the last or first there is', async () => {
    await sandbox.exec('mkdir /root/times && cd /root/times && touch plain');
    const { exit_code: code, stderr } = await sandbox.exec(
      'cd /root/times && touch -d @9000000000000 late && touch -d @9000000000000000000 latest && touch -d @-9000000000000 early',
    );
    expect(stderr).toBe('');
    expect(code).toBe(0);
    const { entries } = await sandbox.files.list('/root/times');
    expect(entries.map(({ name, modified_at: at }) => [name, at.slice(0, 4)])).toEqual([
      ['early', '0000'],
      ['late', '9999'],
      ['latest', '9999'],
      ['plain', String(new Date().getUTCFullYear())],
    ]);
  });

  test('a merge keeps times that nanoseconds can count, and the nearest to others', async () => {
    const [fork] = (await sandbox.fork({ name: 'later' })).sandboxes;
    await fork!.exec('cd /root && touch -d @9200000000 far && touch -d @9000000000000 farther');
    await sandbox.merge(fork!);
    expect((await sandbox.exec('stat -c %Y /root/far /root/farther')).stdout).toBe(
      '9200000000\n9223372035\n',
    );
    await fork!.destroy();
  });
});
