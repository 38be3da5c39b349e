import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Coppice } from '@coppice/sdk';
import type { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { daemonWithGit } from '../mcp/git-image.ts';

const run = promisify(execFile);
const program = join(import.meta.dirname, '../../packages/cli/src/main.ts');

const repository = [
  'git init -q -b main && git config user.email a@b.c && git config user.name a',
  'seq 20 > base && git add . && git commit -qm base',
].join(' && ');

describe('a prepared sandbox, and tasks in its forks', () => {
  let daemon: RunningDaemon;
  beforeAll(async () => {
    daemon = await daemonWithGit();
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  const until = (condition: () => Promise<boolean>) => expect.poll(condition, { timeout: 60_000 }).toBe(true);
  const names = async () => (await daemon.client.sandboxes.list()).map(({ name }) => name).sort();
  const cli = async (...argv: string[]) => {
    const env = { ...process.env, COPPICE_HOME: daemon.home };
    return run(process.execPath, [program, ...argv], { env }).then(
      ({ stdout }) => ({ code: 0, stdout, stderr: '' }),
      ({ code, stdout, stderr }) =>
        ({ code, stdout, stderr }) as { code: number; stdout: string; stderr: string },
    );
  };

  test('are prepared once, run through the API, and their commits merged', async () => {
    const said: string[] = [];
    const prepare = () =>
      daemon.client.sandboxes.prepare('gold', {
        commands: [repository, 'echo ready > /workspace/.git/ready'],
        onProgress: (message) => said.push(message),
      });
    const first = await prepare();
    expect(first).toMatchObject({ reused: false, snapshot: { name: 'golden' } });
    expect(said).toContain('running echo ready > /workspace/.git/ready');
    const again = await prepare();
    expect(again).toMatchObject({ reused: true, snapshot: { id: first.snapshot.id } });

    const ended: string[] = [];
    const swarm = await first.sandbox.swarm(
      [
        { name: 'one', command: 'cat "$SHARED_CONTEXT" && echo 1 > one && git add . && git commit -qm one' },
        { name: 'two', command: 'echo "$GIT_TOKEN"; seq 5000', env: { GIT_TOKEN: 'hunter2-and-more' } },
        { name: 'three', command: 'exit 3' },
      ],
      {
        parallel: 2,
        shared_context: 'be brief\n',
        merge_into: 'gold',
        max_output_bytes: 100,
        onEvent: (event) => {
          if (event.type === 'task') ended.push(event.task.name);
        },
      },
    );
    expect(ended.sort()).toEqual(['one', 'three', 'two']);
    expect(swarm).toMatchObject({
      tasks: [
        { name: 'one', success: true, stdout: 'be brief\n', stdout_cut_bytes: 0 },
        { name: 'two', success: true, stdout: expect.stringMatching(/^\*\*\*hidden\*\*\*\n1\n2/) },
        { name: 'three', success: false, exit_code: 3 },
      ],
      workers_destroyed: 3,
      merge: { success: true, commits: 1 },
    });
    expect(swarm.tasks[1]!.stdout_cut_bytes).toBeGreaterThan(20_000);
    expect((await first.sandbox.exec('cat /workspace/one')).stdout).toBe('1\n');
    expect(await names()).toEqual(['gold']);
    await first.sandbox.destroy();
  });

  test('leave nothing behind when the set-up fails, or when the client goes away', async () => {
    await expect(
      daemon.client.sandboxes.prepare('bad', { commands: ['echo because >&2; exit 5'] }),
    ).rejects.toMatchObject({ message: expect.stringContaining('exit code 5') });
    expect(await names()).toEqual([]);

    const { sandbox } = await daemon.client.sandboxes.prepare('hive');
    const leave = new AbortController();
    const tasks = ['a', 'b'].map((name) => ({ name, command: 'exec sleep 1000' }));
    const swarm = sandbox.swarm(tasks, { keep_workers: true, signal: leave.signal });
    await until(async () => (await names()).length === 3);
    leave.abort();
    await expect(swarm).rejects.toThrow();
    await until(async () => (await names()).length === 1);
    await sandbox.destroy();
  });

  test('`coppice prepare` and `coppice swarm` do the same, and a failed task is the exit code', async () => {
    expect((await cli('prepare', 'crop', '--run', repository)).stdout).toBe(
      'crop is ready, with the snapshot crop:golden\n',
    );
    expect((await cli('prepare', 'crop')).stdout).toBe(
      'crop was there already, with the snapshot crop:golden\n',
    );
    expect(
      await cli('swarm', 'crop', '--task', 'a=echo $X', '--task', 'b=exit 4', '--env', 'X=hello'),
    ).toMatchObject({
      code: 1,
      stdout: 'a: succeeded\n  hello\nb: failed (exit code 4)\n1 of 2 tasks succeeded\n',
    });
    expect(await cli('swarm', 'crop', '--task', 'nothing')).toMatchObject({ code: 2 });
    expect(await cli('swarm', 'crop', '--task', 'a=true', '--task', 'a=true')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('two have the same name'),
    });
    await daemon.client.sandboxes.at('crop').destroy();
  });

  test('a token of a project runs them on its own sandboxes only, and gets no notes', async () => {
    await daemon.client.sandboxes.prepare('other');
    const { secret } = await daemon.client.tokens.create({ scope: 'project:field', name: 'field' });
    using client = new Coppice({ url: daemon.url, token: secret });
    const { sandbox } = await client.sandboxes.prepare('plot');
    expect((await sandbox.inspect()).project).toBe('field');
    const tasks = [{ name: 'a', command: 'true' }];
    expect(await sandbox.swarm(tasks)).toMatchObject({ tasks: [{ success: true }] });
    await expect(sandbox.swarm(tasks, { notes: [{ kind: 'read', query: 'x.md' }] })).rejects.toMatchObject({
      code: 'forbidden',
    });
    const other = await daemon.client.sandboxes.get('other');
    await expect(client.sandboxes.at(other.id).swarm(tasks)).rejects.toMatchObject({ code: 'not_found' });
    await expect(sandbox.swarm(tasks, { merge_into: other.id })).rejects.toMatchObject({
      code: 'not_found',
    });
    const theirs = (await other.snapshots())[0]!;
    await expect(sandbox.swarm(tasks, { snapshot: theirs.id })).rejects.toMatchObject({
      code: 'not_found',
    });
    for (const id of [sandbox.id, other.id]) await daemon.client.sandboxes.at(id).destroy();
  });
});
