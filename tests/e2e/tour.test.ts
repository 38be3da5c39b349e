import { existsSync } from 'node:fs';
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

/** The block that starts PostgreSQL. The recording beside it shows the same commands. */
const postgresIn = (text: string): string[] =>
  text.split('\n').filter((line) => /^coppice (create db|exec (db|try-\d)|fork db) /.test(line));

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
  // Whether containers keep their memory depends on the machine; `create` says where they do not.
  const rest = stderr
    .replaceAll(/^checkpoint, pause and sleep need memory .*\n/gm, '')
    // `rm dev` names what outlives it, which the next line of the tour removes.
    .replace(/^1 snapshot of dev stays: baseline\n/m, '');
  expect({ code, rest }).toEqual({ code: 0, rest: '' });
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

test('the databases at the top of README.md answer as its recording shows', { timeout: patienceMs }, async ({
  skip,
}) => {
  const checkout = join(import.meta.dirname, '../..');
  const commands = postgresIn(await readFile(join(checkout, 'README.md'), 'utf8'));
  expect(commands).toEqual(postgresIn(await readFile(join(checkout, 'docs/recordings/postgres.sh'), 'utf8')));
  if (!existsSync('/usr/lib/postgresql')) skip('PostgreSQL is not installed on this machine');
  await cli.ok('up', '--detach');
  const { drivers } = await cli.json<{ drivers: Record<string, { usable: boolean }> }>('doctor');
  if (drivers.gvisor?.usable !== true) skip('gVisor cannot be had here');
  // Of a try before this one.
  await cli.run(['rm', 'db', 'try-1', 'try-2', 'try-3']);
  const script = commands.join('\n');
  const { code, stdout, stderr } = await cli.spawn('bash', ['--norc', '-euo', 'pipefail', '-c', script], {
    cwd: checkout,
    env: { PATH: `${join(cli.directory, 'bin')}:${process.env.PATH}` },
  });
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  const lines = stdout.trim().split('\n');
  expect(lines[1]).toMatch(/^PostgreSQL \S+ is running$/);
  expect(lines.slice(2)).toEqual([
    ...['try-1', 'try-2', 'try-3'],
    ...['DELETE 75000', '25000'],
    'DROP TABLE',
    '100000',
    '100000',
  ]);
});
