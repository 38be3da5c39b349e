import { execFile } from 'node:child_process';
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Agent, type Answer } from './agent.ts';

let daemon: RunningDaemon;

beforeAll(async () => {
  daemon = await RunningDaemon.start({ config: { limits: { sandboxes_per_session: 3 } } });
});
afterAll(async () => {
  await daemon?.[Symbol.asyncDispose]();
});

test('a session owns what it creates; others see it, and change it only after they took it over', async () => {
  await using ann = await Agent.overHttp(daemon, { session: 'ann' });
  await using bob = await Agent.overHttp(daemon, { session: 'bob' });
  await ann.ok('workspace_create', { name: 'of-ann' });
  expect(await bob.ok('workspace_list')).toMatchObject({
    workspaces: [{ name: 'of-ann', owned: false, session: 'ann' }],
  });
  expect(await bob.refused('exec', { workspace_id: 'of-ann', command: 'true' })).toMatch(
    /forbidden.*\nNext: .*workspace_adopt/,
  );
  expect(await bob.refused('workspace_adopt', { workspace_id: 'of-ann' })).toContain('at work');
  expect(await bob.ok('workspace_adopt')).toMatchObject({
    adopted_count: 0,
    error_count: 1,
    errors: [{ name: 'of-ann' }],
  });
  expect(await bob.ok('workspace_adopt', { workspace_id: 'of-ann', force: true })).toMatchObject({
    adopted: true,
    forced: true,
  });
  expect(await bob.ok('exec', { workspace_id: 'of-ann', command: 'echo mine' })).toMatchObject({
    stdout: 'mine\n',
  });
  expect(await ann.refused('workspace_destroy', { workspace_id: 'of-ann' })).toContain('bob');
  await bob.ok('workspace_destroy', { workspace_id: 'of-ann' });
});

test('ownership and the client itself go on after the daemon was killed and started again', async () => {
  await using ann = await Agent.overStdio(daemon.home, ['--toolsets', 'all', '--session', 'ann']);
  await ann.ok('workspace_create', { name: 'kept' });
  await ann.ok('file_write', { workspace_id: 'kept', path: 'a', content: 'still here' });
  await daemon.kill();
  await daemon.restart();
  expect(await ann.ok('file_read', { workspace_id: 'kept', path: 'a' })).toMatchObject({
    content: 'still here',
  });
  expect(await ann.ok('workspace_list')).toMatchObject({ workspaces: [{ name: 'kept', owned: true }] });
  await using bob = await Agent.overHttp(daemon, { session: 'bob' });
  expect(await bob.refused('workspace_stop', { workspace_id: 'kept' })).toContain('workspace_adopt');
  await ann.ok('workspace_destroy', { workspace_id: 'kept' });
});

test('a session looks into, grows from and deletes its own snapshots only, also by their ids', async () => {
  await using ann = await Agent.overHttp(daemon, { session: 'ann' });
  await using bob = await Agent.overHttp(daemon, { session: 'bob' });
  for (const [agent, name] of [
    [ann, 'of-ann'],
    [bob, 'of-bob'],
  ] as const) {
    await agent.ok('workspace_create', { name });
    await agent.ok('file_write', { workspace_id: name, path: '/root/whose', content: name });
  }
  const take = async (name: string) =>
    (await ann.ok<{ snapshot_id: string }>('snapshot_create', { workspace_id: 'of-ann', name })).snapshot_id;
  const theirs = await take('private');
  const attempts = (snapshot_name: string) =>
    [
      ['snapshot_delete', { snapshot_name }],
      ['snapshot_restore', { snapshot_name }],
      ['snapshot_diff', { snapshot_name }],
      ['workspace_fork', { snapshot_name }],
      ['workspace_batch_fork', { snapshot_name, count: 1 }],
    ] as const;
  const refuses = async (): Promise<void> => {
    for (const ref of [theirs, 'of-ann:private'])
      for (const [tool, args] of attempts(ref))
        expect(await bob.refused(tool, { workspace_id: 'of-bob', ...args }), `${tool} ${ref}`).toMatch(
          /^(forbidden|not_found): /,
        );
    const swarm = {
      golden_workspace: 'of-bob',
      snapshot_name: theirs,
      tasks: [{ name: 'a', command: 'true' }],
    };
    expect(await bob.refused('swarm_run', swarm)).toContain('the session ann');
  };
  await refuses();

  // What a workspace grew from is its own past: it may be grown from again, and belongs to whoever had it before.
  const { workspace_id: grown } = await ann.ok<{ workspace_id: string }>('workspace_fork', {
    workspace_id: 'of-ann',
    snapshot_name: 'private',
  });
  await bob.ok('workspace_adopt', { workspace_id: grown, force: true });
  await bob.ok('snapshot_restore', { workspace_id: grown, snapshot_name: theirs });
  const past = { workspace_id: grown, snapshot_name: theirs };
  expect(await bob.refused('snapshot_delete', past)).toContain('the session ann');
  await bob.ok('workspace_destroy', { workspace_id: grown });

  // It stays with its session when it is kept and its workspace is gone.
  await ann.ok('workspace_destroy', { workspace_id: 'of-ann', keep_snapshots: true });
  await refuses();
  await ann.ok('workspace_create', { name: 'next-of-ann' });
  const left = { workspace_id: 'next-of-ann', snapshot_name: theirs };
  const { workspace_id: again } = await ann.ok<{ workspace_id: string }>('workspace_fork', left);
  const read = { workspace_id: again, path: '/root/whose' };
  expect(await ann.ok('file_read', read)).toMatchObject({ content: 'of-ann' });
  await ann.ok('workspace_destroy', { workspace_id: again });
  await ann.ok('snapshot_delete', left);
  await ann.ok('workspace_destroy', { workspace_id: 'next-of-ann' });
  await bob.ok('workspace_destroy', { workspace_id: 'of-bob' });
});

test('after a restart a session that was just at work is not taken from without force', async () => {
  await using ann = await Agent.overHttp(daemon, { session: 'ann' });
  await ann.ok('workspace_create', { name: 'of-ann' });
  await daemon.kill();
  await daemon.restart();
  await using bob = await Agent.overHttp(daemon, { session: 'bob' });
  expect(await bob.refused('workspace_adopt', { workspace_id: 'of-ann' })).toContain('at work');
  expect(await bob.ok('workspace_adopt')).toMatchObject({ adopted_count: 0, error_count: 1 });
  await using still = await Agent.overHttp(daemon, { session: 'ann' });
  await still.ok('workspace_destroy', { workspace_id: 'of-ann' });
});

test('workspaces that were made without an agent belong to no session, and are adopted without force', async () => {
  const made = await daemon.client.sandboxes.create({ name: 'by-hand' });
  await using ann = await Agent.overHttp(daemon, { session: 'ann' });
  expect(await ann.refused('exec', { workspace_id: 'by-hand', command: 'true' })).toContain('no session');
  expect(await ann.ok('workspace_adopt')).toMatchObject({ adopted_count: 1, error_count: 0 });
  expect(await ann.ok('exec', { workspace_id: made.id, command: 'true' })).toMatchObject({ exit_code: 0 });
  await ann.ok('workspace_destroy', { workspace_id: 'by-hand' });
});

test('a session has at most as many workspaces as the configuration says, also when it asks for many at once', async () => {
  await using ann = await Agent.overHttp(daemon, { session: 'ann' });
  const calls = await Promise.all(Array.from({ length: 5 }, () => ann.call('workspace_create')));
  const made = calls.filter((call) => !call.isError).length;
  expect(made).toBeGreaterThan(0);
  for (let n = made; n < 3; n += 1) await ann.ok('workspace_create');
  expect(await ann.refused('workspace_create')).toMatch(
    /limit_reached: .* 3 of the 3 .*\nNext: .*workspace_destroy/,
  );
  await using bob = await Agent.overHttp(daemon, { session: 'bob' });
  await bob.ok('workspace_create', { name: 'of-bob' });
  const over = { workspace_id: 'of-bob', force: true };
  expect(await ann.refused('workspace_adopt', over)).toMatch(/limit_reached: .* 3 of the 3 /);
  expect(await bob.ok('workspace_info', { workspace_id: 'of-bob' })).toMatchObject({ owned: true });
  const all = await ann.ok<{ workspaces: { workspace_id: string; owned: boolean }[] }>('workspace_list');
  for (const { workspace_id, owned } of all.workspaces)
    await (owned ? ann : bob).ok('workspace_destroy', { workspace_id });
});

test('sessions and what they own are seen and changed through HTTP and at a shell', async () => {
  const { sessions } = daemon.client;
  await using ann = await Agent.overHttp(daemon, { session: 'ann' });
  const made = await ann.ok<{ workspace_id: string }>('workspace_create', { name: 'shown' });
  const shown = { id: made.workspace_id, name: 'shown', state: 'running' };
  const found = (await sessions.list()).find(({ name }) => name === 'ann');
  expect(found).toEqual({ name: 'ann', live: true, sandboxes: [shown], limit: 3 });
  await expect(sessions.adopt('shown', 'bob')).rejects.toMatchObject({ code: 'forbidden' });
  expect(await sessions.adopt('shown', 'bob', { force: true })).toMatchObject({
    adopted: true,
    forced: true,
  });
  expect(await ann.refused('exec', { workspace_id: 'shown', command: 'true' })).toContain('the session bob');
  const program = join(import.meta.dirname, '../../packages/cli/src/main.ts');
  const coppice = async (...argv: string[]) =>
    (
      await promisify(execFile)(process.execPath, [program, ...argv], {
        env: { ...process.env, COPPICE_HOME: daemon.home },
      })
    ).stdout;
  expect(await coppice('sessions', 'ls')).toMatch(/bob +(idle|at work) +1 of 3 +shown/);
  expect(await coppice('sessions', 'adopt', 'ann', 'shown', '--force')).toBe('shown now belongs to ann\n');
  await ann.ok('workspace_destroy', { workspace_id: 'shown' });
});

test('files move between the host and a workspace inside the transfer directory only', async () => {
  await using ann = await Agent.overHttp(daemon, { session: 'ann' });
  await ann.ok('workspace_create', { name: 'transfers' });
  const directory = join(daemon.home, 'transfer');
  await mkdir(join(directory, 'in'), { recursive: true });
  await writeFile(join(directory, 'in/data.csv'), 'a,b\n');
  const upload = (host_path: string) => ({
    workspace_id: 'transfers',
    host_path,
    guest_path: '/app/data.csv',
  });
  expect(await ann.ok('file_upload', upload(join(directory, 'in/data.csv')))).toMatchObject({ bytes: 4 });
  const download = (host_path: string) => ({
    workspace_id: 'transfers',
    host_path,
    guest_path: '/app/data.csv',
  });
  await ann.ok('file_download', download('out/copy.csv'));
  expect(await readFile(join(directory, 'out/copy.csv'), 'utf8')).toBe('a,b\n');

  const token = join(daemon.home, 'token');
  await symlink(daemon.home, join(directory, 'up'));
  await symlink(token, join(directory, 'link'));
  for (const path of [
    token,
    '../token',
    join(directory, '../token'),
    'in/../../token',
    'up/token',
    'link',
    '/etc/passwd',
  ])
    expect(await ann.refused('file_upload', upload(path)), path).toContain('unsafe');
  const elsewhere = await ann.refused('file_upload', upload('/var/lib/agentiso/transfers/dataset.csv'));
  expect(elsewhere).toContain(`${directory}/`);
  expect(elsewhere).toContain('`transfer_dir` in config.json');
  const before = await readFile(token, 'utf8');
  for (const path of [token, '../token', 'up/token', 'link', 'up/new-file', '/tmp/coppice-outside'])
    expect(await ann.refused('file_download', download(path)), path).toContain('unsafe');
  expect(await readFile(token, 'utf8')).toBe(before);
  await ann.ok('workspace_destroy', { workspace_id: 'transfers' });
});

test('eight agents work at once and do not meet', async () => {
  const work = async (n: number): Promise<string> => {
    await using agent = await Agent.overHttp(daemon, {
      session: `agent-${n}`,
      era: n % 2 === 0 ? 'auto' : 'legacy',
    });
    const { workspace_id } = await agent.ok<{ workspace_id: string }>('workspace_create', {
      name: `work-${n}`,
    });
    await agent.ok('file_write', { workspace_id, path: 'who', content: `agent ${n}` });
    await agent.ok('snapshot_create', { workspace_id, name: 'start' });
    await agent.ok('file_write', { workspace_id, path: 'who', content: 'somebody else' });
    await agent.ok('snapshot_restore', { workspace_id, snapshot_name: 'start' });
    const fork = await agent.ok<{ workspace_id: string }>('workspace_fork', {
      workspace_id,
      snapshot_name: 'start',
    });
    const { stdout } = await agent.ok<{ stdout: string }>('exec', {
      workspace_id: fork.workspace_id,
      command: 'cat who',
    });
    for (const id of [fork.workspace_id, workspace_id])
      await agent.ok('workspace_destroy', { workspace_id: id });
    return stdout;
  };
  const numbers = Array.from({ length: 8 }, (_, index) => index);
  expect(await Promise.all(numbers.map(work))).toEqual(numbers.map((n) => `agent ${n}`));
});

test('a swarm runs as many tasks as it takes, 20, whatever the session may own besides', async () => {
  await using agent = await Agent.overHttp(daemon, { session: 'swarming' });
  await using other = await Agent.overHttp(daemon, { session: 'looking-on' });
  await agent.ok('workspace_prepare', { name: 'hive' });
  const tasks = Array.from({ length: 20 }, (_, index) => ({
    name: `task-${index}`,
    command: `until [ -e /tmp/go ]; do sleep 0.1; done; echo ${index}`,
  }));
  const swarm = agent.ok<{ tasks: { success: boolean; stdout: string }[]; summary: Answer }>('swarm_run', {
    golden_workspace: 'hive',
    tasks,
    max_parallel: 20,
  });
  const workers = async () =>
    (await daemon.client.sandboxes.list()).filter(({ name }) => name.startsWith('hive-fork-'));
  await expect
    .poll(async () => (await workers()).filter(({ state }) => state === 'running').length, {
      timeout: 120_000,
    })
    .toBe(20);
  // They are not there for anybody to take, and a second swarm of the session would be too many.
  expect(await other.ok('workspace_adopt')).toMatchObject({ adopted: [] });
  expect(await agent.refused('swarm_run', { golden_workspace: 'hive', tasks: tasks.slice(0, 1) })).toMatch(
    /limit_reached.*20 workers at work/,
  );
  for (const { id } of await workers()) await daemon.client.sandboxes.at(id).files.write('/tmp/go', '');
  const done = await swarm;
  expect(done.tasks.map(({ stdout }) => stdout)).toEqual(tasks.map((_, index) => `${index}\n`));
  expect(done.summary).toMatchObject({ total_tasks: 20, succeeded: 20, workers_destroyed: 20 });
  // Workers that stay count, so there must be room for all of them before the first is made.
  expect(
    await agent.refused('swarm_run', { golden_workspace: 'hive', tasks: tasks.slice(0, 3), cleanup: false }),
  ).toMatch(/limit_reached/);
  expect(await workers()).toEqual([]);
  await agent.ok('workspace_destroy', { workspace_id: 'hive' });
});
