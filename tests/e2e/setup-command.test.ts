import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const run = promisify(execFile);
const repository = join(import.meta.dirname, '..', '..');

test('bin/coppice starts from any directory and through symbolic links, without a word about set-up', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-command-'));
  try {
    symlinkSync(join(repository, 'bin', 'coppice'), join(directory, 'first'));
    symlinkSync('first', join(directory, 'second'));
    const { stdout, stderr } = await run(join(directory, 'second'), ['--help'], { cwd: directory });
    expect(stdout).toContain('coppice');
    expect(stderr).toBe('');
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
