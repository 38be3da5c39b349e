import { execFile, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { skipFor } from '@coppice/testkit';
import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');
/** Each version reports different findings. Those of this one have been fixed or marked. */
const version = 14;

function whyNot(): string | undefined {
  const said = spawnSync('clang-tidy', ['--version'], { encoding: 'utf8' });
  if (said.error) return 'clang-tidy is not installed';
  const found = /version (\d+)/.exec(said.stdout)?.[1];
  return Number(found) === version
    ? undefined
    : `clang-tidy is version ${found}; the programs are checked with version ${version}`;
}

/** Results are kept in .tools, so a second run checks only the sources that changed. */
const tidy = (): Promise<string> =>
  promisify(execFile)(
    'make',
    ['-s', '-k', '-j2', '-C', 'native', 'tidy', `BUILD=${join(root, '.tools/tidy')}`],
    { cwd: root, maxBuffer: 64 * 1024 * 1024 },
  ).then(
    () => '',
    (error: { stdout: string; stderr: string }) => error.stdout + error.stderr,
  );

test('clang-tidy finds nothing in the C programs', {
  ...skipFor(whyNot()),
  timeout: 30 * 60_000,
}, async () => {
  expect(await tidy()).toBe('');
});
