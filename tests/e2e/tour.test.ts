import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { CliHome } from './cli-home.ts';

let cli: CliHome;
beforeAll(async () => {
  cli = await CliHome.make();
});
afterAll(() => cli?.remove(), 300_000);

/** The fenced shell block of README.md that starts the daemon and goes on. */
const tourOf = (readme: string): string => {
  const blocks = [...readme.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, block]) => block ?? '');
  const tour = blocks.find((block) => block.includes('up --detach'));
  if (tour === undefined) throw new Error('README.md has no tour');
  return tour;
};

// The first `create` makes the image `host`, a copy of /usr: minutes on a busy machine.
const patienceMs = 900_000;

test('the tour in README.md works as it is printed', { timeout: patienceMs }, async () => {
  const tour = tourOf(await readFile(join(import.meta.dirname, '../../README.md'), 'utf8'));
  // Bash takes a socket on stdin for a remote shell, and would read the machine's own start-up files.
  const { code, stdout, stderr } = await cli.spawn('bash', [
    '--norc',
    '--noprofile',
    '-euo',
    'pipefail',
    '-c',
    tour,
  ]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toMatch(/^answer = 42$/m);
  expect(stdout).toMatch(/^M \/workspace\/app\.conf/m);
  expect(stdout).toMatch(/^A \/workspace\/extra\.conf/m);
  expect(stdout).toMatch(/● dev {2}running/);
});

test('each sandbox of the image host, a fork too, finds its own name in /etc/hostname', async () => {
  await cli.ok('up', '--detach');
  await cli.ok('create', 'Oak.1');
  await cli.ok('fork', 'Oak.1', 'twig');
  expect(await cli.ok('exec', 'Oak.1', 'cat', '/etc/hostname')).toBe('oak-1');
  expect(await cli.ok('exec', 'twig', 'cat', '/etc/hostname')).toBe('twig');
  expect(await cli.ok('diff', 'Oak.1', 'twig')).toBe('no difference');
});
