import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readFile, readlink, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CoppiceError, errorKinds } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runCli, shellIn } from './run-cli.ts';

let daemon: RunningDaemon;
beforeAll(async () => {
  daemon = await RunningDaemon.start();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

const cli = (...argv: string[]) => runCli(daemon, ...argv);
const sh = (sandbox: Sandbox, command: string): Promise<string> => shellIn(sandbox, '/', command);
const pair = async (name: string, setUp: string): Promise<[Sandbox, Sandbox]> => {
  for (const { id } of await daemon.client.sandboxes.list()) await daemon.client.sandboxes.at(id).destroy();
  const dev = await daemon.client.sandboxes.create({ name });
  await sh(dev, setUp);
  const [fork] = (await dev.fork({ name: `${name}-fork` })).sandboxes;
  return [dev, fork!];
};
const tree =
  'mkdir -p /w/src /w/node_modules/x /w/src/node_modules /v && echo 1 > /w/src/a && echo 1 > /w/b.log';

test('a diff is of the paths that are asked for, without what is excluded, in every door', async () => {
  const [dev, fork] = await pair('some', tree);
  await sh(
    fork,
    'echo 2 > /w/src/a; echo 2 > /w/node_modules/x/y; echo 2 > /w/b.log; echo 2 > /v/c; echo 2 > /w/src/node_modules/z',
  );
  const paths = async (options: object) =>
    (await daemon.client.diff(dev.id, fork.id, options)).changes.map(({ path }) => path);
  expect(await paths({ path: ['/w/src', '/v', '/w/src/a'], exclude: 'node_modules' })).toEqual([
    '/w/src/a',
    '/v/c',
  ]);
  expect(await paths({ path: '/w', exclude: ['node_modules', '*.log'] })).toEqual(['/w/src/a']);
  expect(await paths({ path: '/w', exclude: ['/w/node_modules', '/w/src'] })).toEqual(['/w/b.log']);
  const below = await cli('diff', 'some', 'some-fork', '/w/src');
  expect(below.stdout).toBe('M /w/src/a (2 B -> 2 B)\nA /w/src/node_modules/z (2 B)\n1 added, 1 modified\n');
  const two = await cli('diff', 'some', 'some-fork', '/w/src', '/v', '--exclude', 'node_modules');
  expect(two.stdout).toBe('M /w/src/a (2 B -> 2 B)\nA /v/c (2 B)\n1 added, 1 modified\n');
  const answer = await fetch(
    `${daemon.url}/v1/diff?from=some&to=some-fork&path=/w&path=/v&exclude=node_modules&exclude=*.log`,
    { headers: { authorization: `Bearer ${daemon.token}` } },
  );
  expect(((await answer.json()) as { changes: unknown[] }).changes).toHaveLength(2);
  expect(await cli('diff', 'some', 'some-fork', 'w')).toMatchObject({
    code: errorKinds.invalid_argument.exitCode,
    stderr: expect.stringContaining('does not begin with a slash'),
  });
  expect(await cli('diff', 'some', 'some-fork', '/nowhere')).toMatchObject({
    code: errorKinds.not_found.exitCode,
  });
});

test('a merge of some paths brings these, and a later merge of all brings the rest', async () => {
  const [dev, fork] = await pair('part', tree);
  await sh(fork, 'echo 2 > /w/src/a; echo 2 > /w/node_modules/x/y; echo 2 > /v/c; rm /w/b.log');
  const first = await cli(
    'merge',
    'part-fork',
    'part',
    '--path',
    '/w',
    '--exclude',
    'node_modules',
    '--exclude',
    '*.log',
  );
  expect(first).toMatchObject({ code: 0 });
  expect(await sh(dev, 'cat /w/src/a; ls -A /w/node_modules/x /v; cat /w/b.log')).toBe(
    '2\n/v:\n\n/w/node_modules/x:\n1',
  );
  expect(await dev.merge(fork, { path: '/w/src' })).toMatchObject({ changes: [], applied: true });
  // Changed here since: a merge that skipped it must not take it for known.
  await sh(dev, 'echo 3 > /v/c');
  const clash = await dev.merge(fork).catch((error: unknown) => error);
  expect(clash).toBeInstanceOf(CoppiceError);
  expect((clash as CoppiceError).details?.conflicts).toEqual([
    { path: '/v/c', ours: 'added', theirs: 'added' },
  ]);
  await dev.merge(fork, { exclude: '/v/c' });
  expect(await sh(dev, 'cat /w/node_modules/x/y; ls /w; cat /v/c')).toBe('2\nnode_modules\nsrc\n3');
});

test('a patch is taken by git apply, says what it cannot hold, and begins below the one path it is of', async () => {
  const [dev, fork] = await pair(
    'patched',
    'mkdir -p "/w/sub dir" && seq 30 > /w/long && printf no-newline > /w/end && echo x > /w/gone && printf "\\0\\1" > /w/bytes && echo s > /w/run && ln -s long /w/link && echo "q" > "/w/sub dir/a\\"b" && echo k > /w/kind',
  );
  await sh(
    fork,
    'cd /w && sed -i "s/^3$/three/;s/^28$/end/" long && printf ending > end && rm gone link kind && ln -s end link && printf "\\0\\2" > bytes && chmod +x run && echo "r" > "sub dir/a\\"b" && mkdir new && echo n > new/n && ln -s long kind && echo 1 > /etc/elsewhere && chmod 600 end',
  );
  const { patch, missing } = await daemon.client.patch(dev.id, fork.id, { path: '/w' });
  expect(missing).toEqual([{ path: '/w/bytes', reason: 'binary' }]);
  const directory = await mkdtemp(join(tmpdir(), 'coppice-patch-'));
  try {
    await mkdir(join(directory, 'sub dir'));
    const numbers = Array.from({ length: 30 }, (_, index) => `${index + 1}\n`).join('');
    const files = {
      long: numbers,
      end: 'no-newline',
      gone: 'x\n',
      run: 's\n',
      'sub dir/a"b': 'q\n',
      kind: 'k\n',
    };
    for (const [name, text] of Object.entries(files)) await writeFile(join(directory, name), text);
    await symlink('long', join(directory, 'link'));
    execFileSync('git', ['init', '-q'], { cwd: directory });
    execFileSync('git', ['apply', '--whitespace=nowarn', '-'], { cwd: directory, input: patch });
    expect(await readFile(join(directory, 'long'), 'utf8')).toBe(
      numbers.replace('\n3\n', '\nthree\n').replace('28\n', 'end\n'),
    );
    expect(await readFile(join(directory, 'end'), 'utf8')).toBe('ending');
    expect(await readFile(join(directory, 'sub dir/a"b'), 'utf8')).toBe('r\n');
    expect(await readFile(join(directory, 'new/n'), 'utf8')).toBe('n\n');
    expect([await readlink(join(directory, 'link')), await readlink(join(directory, 'kind'))]).toEqual([
      'end',
      'long',
    ]);
    expect((await stat(join(directory, 'run'))).mode & 0o100).toBe(0o100);
    await expect(stat(join(directory, 'gone'))).rejects.toThrow('ENOENT');
  } finally {
    await rm(directory, { recursive: true });
  }
  const shown = await cli('diff', 'patched', 'patched-fork', '--patch', '--exclude', '/w');
  expect(shown.stdout).toBe(
    'diff --git a/etc/elsewhere b/etc/elsewhere\nnew file mode 100644\n--- /dev/null\n+++ b/etc/elsewhere\n@@ -0,0 +1,1 @@\n+1\n',
  );
  expect((await cli('diff', 'patched', 'patched-fork', '/w', '--patch')).stderr).toContain(
    '/w/bytes is not text',
  );
  expect((await cli('diff', 'patched', 'patched-fork', '--patch', '--stat')).code).toBe(
    errorKinds.invalid_argument.exitCode,
  );
});
