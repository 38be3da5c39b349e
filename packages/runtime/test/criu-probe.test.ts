import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { criuRefusal } from '../src/drivers/container/criu-probe.ts';

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-criu-'));
});
afterAll(() => rmSync(directory, { recursive: true }));

const programThat = (name: string, version: string, check: string): string => {
  const path = join(directory, name);
  writeFileSync(
    path,
    `#!/bin/sh\ncase $1 in --version) echo "Version: ${version}";; check) ${check};; esac\n`,
  );
  chmodSync(path, 0o755);
  return path;
};

it('says why containers keep no memory: no CRIU, an old one, one that fails its check, or one that is not used', async () => {
  expect(await criuRefusal(join(directory, 'absent'))).toBe('CRIU is not installed');
  expect(await criuRefusal(programThat('old', '3.17.1', 'exit 0'))).toMatch(
    'CRIU 3.17.1 is installed, and 4 or',
  );
  const failing = programThat('failing', '4.1', 'echo "Error: no userfaultfd" >&2; exit 1');
  expect(await criuRefusal(failing)).toMatch(/CRIU 4\.1 does not pass.*no userfaultfd/);
  expect(await criuRefusal(programThat('good', '4.1', 'exit 0'))).toMatch(/does not use it yet/);
});
