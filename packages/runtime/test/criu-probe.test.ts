import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { probeCriu } from '../src/drivers/container/criu-probe.ts';

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

it('says why containers keep no memory: no CRIU, an old one, or one that fails its check', async () => {
  expect(await probeCriu(join(directory, 'absent'))).toMatchObject({
    refusal: expect.stringContaining('CRIU is not installed'),
  });
  expect(await probeCriu(programThat('old', '3.17.1', 'exit 0'))).toMatchObject({
    refusal: 'CRIU 3.17.1 is installed, and 4 or later is needed',
  });
  const failing = programThat('failing', '4.1', 'echo "Error: no userfaultfd" >&2; exit 1');
  expect(await probeCriu(failing)).toMatchObject({
    refusal: expect.stringMatching(/CRIU 4\.1 does not pass.*no userfaultfd/),
  });
});

it('takes a CRIU that is new enough and passes its check', async () => {
  const program = programThat('good', '4.1.1', 'exit 0');
  expect(await probeCriu(program)).toEqual({ program, version: '4.1.1' });
});
