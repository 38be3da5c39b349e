import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { LogFile } from '../src/host/log-file.ts';

describe('a log', () => {
  let directory: string;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'coppice-log-'));
  });
  afterEach(() => rmSync(directory, { recursive: true }));

  test('keeps the newest lines within twice its size, and goes on in what an earlier process wrote', () => {
    const path = join(directory, 'deep', 'log');
    const maxBytes = 1000;
    for (let line = 0; line < 500; line += 1) {
      using log = new LogFile(path, maxBytes);
      log.write(`line ${line}\n`);
    }
    expect(readdirSync(join(directory, 'deep')).sort()).toEqual(['log', 'log.1']);
    const text = readFileSync(`${path}.1`, 'utf8') + readFileSync(path, 'utf8');
    expect(text.length).toBeLessThanOrEqual(2 * maxBytes);
    expect(text.length).toBeGreaterThan(maxBytes - 20);
    const lines = text.trimEnd().split('\n');
    expect(lines).toEqual(Array.from(lines, (_, index) => `line ${500 - lines.length + index}`));
    for (const file of [path, `${path}.1`]) expect(statSync(file).mode & 0o777).toBe(0o600);
  });

  test('survives a full disk, and says afterwards how many lines it took', () => {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'none', directory]);
    try {
      using log = new LogFile(join(directory, 'log'), 1_000_000);
      writeFileSync(join(directory, 'filler'), Buffer.alloc(56 * 1024));
      for (let line = 0; line < 100; line += 1) log.write(`${'x'.repeat(999)}\n`);
      rmSync(join(directory, 'filler'));
      log.write('after\n');
      const [lost, after] = readFileSync(join(directory, 'log'), 'utf8').trimEnd().split('\n').slice(-2);
      expect(after).toBe('after');
      expect(lost).toMatch(/^\{.*"lost_lines":9\d\}$/);
    } finally {
      execFileSync('umount', [directory]);
    }
  });
});

test('the log of the daemon is bounded as config.json says', async () => {
  await using daemon = await RunningDaemon.start({ image: false, config: { log_max_mb: 1 } });
  await daemon.stop();
  const log = join(daemon.home, 'log', 'daemon.log');
  writeFileSync(log, Buffer.alloc(1024 * 1024, '\n'));
  await daemon.restart();
  // It answers before it has written so.
  await eventually('it says that it listens', () => readFileSync(log, 'utf8').includes('listening'));
  expect(statSync(log).size).toBeLessThan(64 * 1024);
  expect(statSync(`${log}.1`).size).toBe(1024 * 1024);
});
