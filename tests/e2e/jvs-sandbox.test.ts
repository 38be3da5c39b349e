import { existsSync } from 'node:fs';
import { readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { CliHome } from './cli-home.ts';

vi.setConfig({ testTimeout: 600_000, hookTimeout: 600_000 });

const hasGvisor = ['/usr/local/bin/runsc', '/usr/bin/runsc'].some((path) => existsSync(path));
const jvsProgram = join(import.meta.dirname, '../../packages/workspaces/src/cli/main.ts');

let cli: CliHome;
let counter = 0;
beforeAll(async () => {
  cli = await CliHome.start();
});
afterAll(() => cli?.remove());

/** `coppice workspace …` and `jvs …` by turns: they are the same. */
const workspace = async (cwd: string, ...argv: string[]): Promise<string> => {
  counter += 1;
  const { code, stdout, stderr } =
    counter % 2 === 0
      ? await cli.run(['workspace', ...argv], { cwd })
      : await cli.spawn(process.execPath, [jvsProgram, ...argv], { cwd });
  if (code !== 0) throw new Error(`${argv.join(' ')} ended with ${code}: ${stderr}`);
  return stdout;
};

const makeWorktree = async (): Promise<string> => {
  counter += 1;
  const name = `work-${counter}`;
  await workspace(cli.directory, 'init', name);
  return join(cli.directory, name, 'main');
};

describe('a worktree as the /workspace of a sandbox', () => {
  test.each(['container', 'gvisor'])(
    'jvs sees what the agent did there, and the agent what jvs restored, with the driver %s',
    async (driver) => {
      if (driver === 'gvisor' && !hasGvisor) return;
      const worktree = await makeWorktree();
      await writeFile(join(worktree, 'task'), 'count to three\n');
      await workspace(worktree, 'snapshot', 'Before the agent', '--tag', 'baseline');
      const name = await cli.ok('create', '--driver', driver, '--workspace', worktree);
      try {
        const agent = (script: string): Promise<string> => cli.ok('exec', name, '--', 'sh', '-c', script);
        expect(await agent('cat /workspace/task')).toBe('count to three');
        await agent('cd /workspace && mkdir out && echo 123 > out/answer && chmod 755 out/answer && rm task');
        expect((await workspace(worktree, 'diff', 'baseline')).split('\n').sort()).toEqual([
          '',
          'A out/',
          'A out/answer',
          'D task',
        ]);
        await workspace(worktree, 'snapshot', 'What the agent did', '--tag', 'done');
        await workspace(worktree, 'restore', 'baseline');
        // It goes on in the same directory, without a restart.
        expect(await agent('cd /workspace && ls && cat task')).toBe('task\ncount to three');
        await agent('echo again > /workspace/second');
        expect(await readFile(join(worktree, 'second'), 'utf8')).toBe('again\n');
        await workspace(worktree, 'restore', 'done');
        expect(await agent('cat /workspace/out/answer; ls /workspace')).toBe('123\nout');
        expect((await stat(join(worktree, 'out/answer'))).mode & 0o777).toBe(0o755);
        expect(JSON.parse(await workspace(worktree, 'doctor', '--strict', '--json'))).toMatchObject({
          healthy: true,
        });
        // What was unsaved when a restore came is in the history.
        expect(await workspace(worktree, 'history')).toContain('Unsaved changes');
      } finally {
        await cli.ok('rm', name);
      }
      expect(await readFile(join(worktree, 'out/answer'), 'utf8')).toBe('123\n');
    },
  );

  test('a directory that is not there, a symbolic link and the history itself are refused, and no sandbox is made', async () => {
    const worktree = await makeWorktree();
    const link = `${worktree}-link`;
    await symlink(dirname(worktree), link);
    const before = await cli.json<unknown[]>('ls');
    for (const [path, says] of [
      [join(worktree, 'nowhere'), 'does not exist'],
      [join(link, 'main'), 'symbolic link'],
      [join(worktree, '..'), 'holds the history'],
    ] as const) {
      const { code, stderr } = await cli.run(['create', '--workspace', path]);
      expect(code).toBeGreaterThan(0);
      expect(stderr).toContain(says);
    }
    expect(await cli.json('ls')).toEqual(before);
  });
});
