import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, realpath, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';

vi.setConfig({ testTimeout: 900_000, hookTimeout: 300_000 });

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
let place: string;

/** A checkout that nobody has set up, but for Node, which is large. */
beforeAll(async () => {
  place = await realpath(await mkdtemp(join(tmpdir(), 'jvs-first-use-')));
  const checkout = join(place, 'checkout');
  await mkdir(join(checkout, '.tools'), { recursive: true });
  const kept = ['bin', 'native', 'packages', 'scripts', 'package.json', 'package-lock.json', '.node-version'];
  for (const name of kept) {
    await cp(join(root, name), join(checkout, name), {
      recursive: true,
      filter: (path) => !/\/(node_modules|build)$/.test(path),
    });
  }
  await symlink(join(root, '.tools/node'), join(checkout, '.tools/node'));
});
afterAll(() => rm(place, { recursive: true, force: true }));

test('the first command of a fresh checkout sets up what jvs needs, and no more', async ({ skip }) => {
  const reachable = await run('npm', ['view', 'diff', 'version']).catch(() => undefined);
  if (!reachable) skip('the npm registry cannot be reached');
  const checkout = join(place, 'checkout');
  const jvs = (...args: string[]) => run(join(checkout, 'bin/jvs'), args, { cwd: place });
  expect((await jvs('init', 'ws')).stdout).toContain('The workspace ws is ready');
  expect(existsSync(join(checkout, 'node_modules'))).toBe(false);
  expect(existsSync(join(checkout, 'dist/coppice.mjs'))).toBe(false);
  const { stdout, stderr } = await jvs('-C', 'ws/main', 'snapshot', 'one', '--json');
  expect(JSON.parse(stdout)).toMatchObject({ note: 'one' });
  expect(stderr).toBe('');
});
