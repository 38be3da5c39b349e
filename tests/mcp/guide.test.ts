import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Agent, type Answer } from './agent.ts';
import { daemonWithGit } from './git-image.ts';
import { type GuideCall, guide } from './guide-calls.ts';

/** Makes the guide's calls in order; the id of the workspace that was created last stands where the guide has one. */
class Follower {
  readonly #agent: Agent;
  workspaceId = '';

  constructor(agent: Agent) {
    this.#agent = agent;
  }

  async make<T = Answer>(call: GuideCall | undefined, ids: Record<string, string> = {}): Promise<T> {
    if (call === undefined) throw new Error('the guide has no such call');
    const printed = call.arguments.workspace_id as string | undefined;
    const args =
      printed === undefined
        ? call.arguments
        : { ...call.arguments, workspace_id: ids[printed] ?? this.workspaceId };
    const answer = await this.#agent.ok<T>(call.tool, args);
    if (call.tool === 'workspace_create')
      this.workspaceId = (answer as { workspace_id: string }).workspace_id;
    return answer;
  }
}

const guideTools = { toolsets: 'guide', full_schemas: 'true' };

describe('the guide for agents', () => {
  let daemon: RunningDaemon;
  let agent: Agent;
  let follow: Follower;
  let transfers: string;

  beforeAll(async () => {
    transfers = await mkdtemp(join(tmpdir(), 'coppice-transfers-'));
    daemon = await daemonWithGit({ transfer_dir: transfers });
    agent = await Agent.overHttp(daemon, { select: guideTools });
    follow = new Follower(agent);
  });
  afterAll(async () => {
    await agent?.client.close();
    await daemon?.[Symbol.asyncDispose]();
    if (transfers !== undefined) await rm(transfers, { recursive: true, force: true });
  });

  test('pattern 1: a disposable sandbox runs a script and leaves nothing behind', async () => {
    const [create, write, exec, destroy] = guide.disposable;
    const created = await follow.make(create);
    expect(created).toMatchObject({ name: 'sandbox-untrusted-script', state: 'running' });
    await follow.make(write);
    expect(await follow.make(exec)).toMatchObject({ exit_code: 0, stdout: expect.stringContaining('tmp') });
    await follow.make(destroy);
    expect(await agent.ok('workspace_list')).toEqual({ workspaces: [] });
  });

  test('pattern 1: internet access is off by default, and on when asked for at creation or later', async () => {
    const [create, policy] = guide.internet;
    await follow.make(create);
    expect(await agent.ok('workspace_info', { workspace_id: 'sandbox-with-net' })).toMatchObject({
      network: { allow_internet: true },
    });
    expect(await follow.make(policy)).toMatchObject({
      network_policy: { allow_internet: true, allow_inter_vm: false },
    });
    await agent.ok('workspace_create', { name: 'no-net' });
    expect(await agent.ok('workspace_info', { workspace_id: 'no-net' })).toMatchObject({
      network: { allow_internet: false },
    });
    for (const name of ['sandbox-with-net', 'no-net'])
      await agent.ok('workspace_destroy', { workspace_id: name });
  });

  test('pattern 2: a rollback puts the disk back as it was at the snapshot', async () => {
    const [create, setUp, snapshot, write, run, restore, second] = guide.rollback;
    expect(await follow.make(create)).toMatchObject({ resources: { memory_mb: 1024 } });
    expect(await follow.make(setUp)).toMatchObject({ exit_code: 0 });
    expect(await follow.make(snapshot)).toMatchObject({ name: 'after-npm-install', has_memory: false });
    await follow.make(write);
    expect(await follow.make(run)).toMatchObject({ exit_code: 0, stdout: 'node ran\n' });
    expect(await follow.make(restore)).toMatchObject({
      snapshot_name: 'after-npm-install',
      state: 'running',
    });
    const left = await agent.ok<{ entries: { name: string }[] }>('file_list', {
      workspace_id: 'dev-loop',
      path: '/app',
    });
    expect(left.entries.map((entry) => entry.name).sort()).toEqual(['node_modules', 'package.json']);
    await follow.make(second);
    const { snapshots } = await agent.ok<{ snapshots: { name: string; automatic: boolean }[] }>(
      'snapshot_list',
      {
        workspace_id: 'dev-loop',
      },
    );
    const named = snapshots.filter(({ automatic }) => !automatic).map(({ name }) => name);
    expect(named.sort()).toEqual(['after-npm-install', 'v2-working']);
    await agent.ok('workspace_destroy', { workspace_id: 'dev-loop' });
  });

  test('pattern 3: forks of one snapshot are independent, and say what they were forked from', async () => {
    const [create, setUp, write, snapshot, sorting, hashmap, dp, loseFirst, loseSecond] = guide.hypotheses;
    await follow.make(create);
    expect(await follow.make(setUp)).toMatchObject({ exit_code: 0 });
    await follow.make(write);
    await follow.make(snapshot);
    const forks: { workspace_id: string; name: string }[] = [];
    for (const call of [sorting, hashmap, dp]) {
      const fork = await follow.make<{ workspace_id: string; name: string }>(call);
      expect(fork).toMatchObject({
        state: 'running',
        forked_from: {
          source_workspace_id: follow.workspaceId,
          source_workspace_name: 'hypothesis-base',
          snapshot_name: 'base-ready',
        },
      });
      forks.push(fork);
    }
    await agent.ok('file_write', {
      workspace_id: 'approach-sorting',
      path: '/app/problem.py',
      content: 'sorted\n',
    });
    expect(
      await agent.ok('file_read', { workspace_id: 'approach-dp', path: '/app/problem.py' }),
    ).toMatchObject({
      content: 'def solve(data):\n    pass  # TODO\n',
    });
    expect(await agent.ok('workspace_info', { workspace_id: 'approach-dp' })).toMatchObject({
      forked_from: { source_workspace_name: 'hypothesis-base', snapshot_name: 'base-ready' },
    });
    const inUse = await agent.refused('snapshot_delete', {
      workspace_id: follow.workspaceId,
      snapshot_name: 'base-ready',
    });
    expect(inUse).toContain('workspace_destroy');
    const losers = { '<losing-fork-1>': forks[0]!.workspace_id, '<losing-fork-2>': forks[1]!.workspace_id };
    await follow.make(loseFirst, losers);
    await follow.make(loseSecond, losers);
    for (const name of ['approach-dp', 'hypothesis-base'])
      await agent.ok('workspace_destroy', { workspace_id: name });
  });

  test('pattern 4: an environment is found again in a later session and goes on where it was', async () => {
    const [create, setUp, snapshot, list, start, build] = guide.persistent;
    expect(await follow.make(create)).toMatchObject({ resources: { memory_mb: 2048, disk_gb: 20 } });
    expect(await follow.make(setUp)).toMatchObject({ exit_code: 0 });
    await follow.make(snapshot);
    await agent.ok('workspace_stop', { workspace_id: 'rust-dev-env' });

    await using later = await Agent.overHttp(daemon, { select: guideTools });
    const again = new Follower(later);
    const { workspaces } = await again.make<{
      workspaces: { workspace_id: string; name: string; state: string }[];
    }>(list);
    const found = workspaces.find((workspace) => workspace.name === 'rust-dev-env');
    expect(found).toMatchObject({ state: 'stopped', owned: true });
    again.workspaceId = found!.workspace_id;
    expect(await again.make(start)).toMatchObject({ state: 'running' });
    expect(await again.make(build)).toMatchObject({
      exit_code: 0,
      stdout: expect.stringContaining('Finished'),
    });
  });

  test('background jobs answer with what they wrote and how they ended', async () => {
    const [start, poll] = guide.background;
    // The guide's cargo is on the path of the shell that sources ~/.cargo/env.
    await agent.ok('set_env', {
      workspace_id: 'rust-dev-env',
      vars: { PATH: '/root/.cargo/bin:/usr/bin:/bin' },
    });
    follow.workspaceId = 'rust-dev-env';
    expect(await follow.make(start)).toMatchObject({ job_id: 1, status: 'started' });
    await agent.ok('exec_poll', { workspace_id: 'rust-dev-env', job_id: 1, wait_secs: 60 });
    expect(await follow.make(poll)).toMatchObject({
      job_id: 1,
      running: false,
      exit_code: 0,
      stdout: '   Compiling app\n    Finished release\n',
      stderr: '',
    });
    await agent.ok('workspace_destroy', { workspace_id: 'rust-dev-env' });
  });

  test('pattern 5: files are read, edited, replaced and listed', async () => {
    await agent.ok('workspace_create', { name: 'editing' });
    follow.workspaceId = 'editing';
    await agent.ok('file_write', {
      workspace_id: 'editing',
      path: '/app/config.py',
      content: 'DEBUG = True\nPORT = 1\n',
    });
    const [read, edit, write, list] = guide.editing;
    expect(await follow.make(read)).toMatchObject({ content: 'DEBUG = True\nPORT = 1\n' });
    expect(await follow.make(edit)).toMatchObject({ replacements: 1 });
    expect(await follow.make(read)).toMatchObject({ content: 'DEBUG = False\nPORT = 1\n' });
    await follow.make(write);
    expect(await follow.make(list)).toMatchObject({
      entries: [
        { name: 'config.py', kind: 'file', size: 76, permissions: '644', modified: expect.any(String) },
      ],
    });
  });

  test('files go to the workspace and back through the directory that is configured for it', async () => {
    const [upload, download] = guide.transfer.map((call) => ({
      ...call,
      arguments: {
        ...call.arguments,
        host_path: (call.arguments.host_path as string).replace('/var/lib/agentiso/transfers', transfers),
      },
    }));
    await writeFile(join(transfers, 'dataset.csv'), 'a,b\n1,2\n');
    await follow.make(upload);
    const work = 'mkdir -p /app/output && wc -l < /app/data/dataset.csv > /app/output/results.json';
    await agent.ok('exec', { workspace_id: 'editing', command: work });
    expect(await follow.make(download)).toMatchObject({ bytes: 2 });
    expect(await readFile(join(transfers, 'results.json'), 'utf8')).toBe('2\n');
  });

  test('a port is forwarded to a port of the host that is assigned, and removed again', async () => {
    const [forward, forwardTo, remove] = guide.ports;
    const { host_port: port } = await follow.make<{ host_port: number }>(forward);
    expect(port).toBeGreaterThanOrEqual(1024);
    expect(await agent.ok('workspace_info', { workspace_id: 'editing' })).toMatchObject({
      network: { port_forwards: [{ guest_port: 8080, host_port: port }] },
    });
    await follow.make(remove);
    // The port was free a moment ago; 9090 itself may be another program's.
    const chosen = { ...forwardTo!, arguments: { ...forwardTo!.arguments, host_port: port } };
    expect(await follow.make(chosen)).toMatchObject({ guest_port: 8080, host_port: port });
    await follow.make(remove);
    const low = await agent.refused('port_forward', {
      workspace_id: 'editing',
      guest_port: 80,
      host_port: 80,
    });
    expect(low).toContain('1024');
    await agent.ok('workspace_destroy', { workspace_id: 'editing' });
  });

  test('pattern 6: a repository is cloned, changed, committed and pushed', async () => {
    const [create, clone, edit, status, push] = guide.git;
    await follow.make(create);
    const serve = [
      'git init -q --bare -b main /srv/user/repo.git && git clone -q /srv/user/repo.git /tmp/seed && cd /tmp/seed',
      'git config user.email a@b.c && git config user.name a && echo "# Old Title" > README.md',
      'git add . && git commit -qm first && git push -q origin HEAD:main',
      'git config --global url./srv/.insteadOf https://github.com/',
    ].join(' && ');
    expect(await agent.ok('exec', { workspace_id: 'git-work', command: serve })).toMatchObject({
      exit_code: 0,
    });
    expect(await follow.make(clone)).toMatchObject({
      success: true,
      path: '/workspace/repo',
      branch: 'main',
    });
    await follow.make(edit);
    expect(await follow.make(status)).toEqual({
      branch: 'main',
      ahead: 0,
      behind: 0,
      staged: [],
      modified: ['README.md'],
      untracked: [],
      conflicted: [],
      dirty: true,
    });
    expect(await follow.make(push)).toMatchObject({ exit_code: 0 });
    const pushed = await agent.ok('exec', {
      workspace_id: 'git-work',
      command: 'git -C /srv/user/repo.git show main:README.md',
    });
    expect(pushed).toMatchObject({ stdout: '# New Title\n' });
    await agent.ok('workspace_destroy', { workspace_id: 'git-work' });
  });

  test('pattern 7: snapshots say what they cost, and which files changed since', async () => {
    await agent.ok('workspace_create', { name: 'sizes' });
    follow.workspaceId = 'sizes';
    await agent.ok('exec', {
      workspace_id: 'sizes',
      command: 'mkdir -p /app && head -c 1000000 /dev/urandom > /app/data',
    });
    await agent.ok('snapshot_create', { workspace_id: 'sizes', name: 'after-install' });
    await agent.ok('exec', { workspace_id: 'sizes', command: 'echo x > /app/new && rm /app/data' });
    const [list, diff] = guide.sizes;
    const { snapshots } = await follow.make<{ snapshots: { referenced_bytes: number }[] }>(list);
    expect(snapshots).toMatchObject([
      { name: 'after-install', created_at: expect.any(String), used_bytes: expect.any(Number) },
    ]);
    expect(snapshots[0]!.referenced_bytes).toBeGreaterThanOrEqual(1_000_000);
    expect(await follow.make(diff)).toMatchObject({
      changes: expect.arrayContaining([
        expect.objectContaining({ path: '/app/new', change: 'added' }),
        expect.objectContaining({ path: '/app/data', change: 'removed', size_before: 1_000_000 }),
      ]),
    });
    await agent.ok('workspace_destroy', { workspace_id: 'sizes' });
  });
});
