import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Agent, type Answer } from './agent.ts';
import { daemonWithGit } from './git-image.ts';

let daemon: RunningDaemon;
let agent: Agent;

const sh = async (workspace: string, command: string): Promise<string> => {
  const result = await agent.ok<{ exit_code: number; stdout: string; stderr: string }>('exec', {
    workspace_id: workspace,
    command,
  });
  expect(result, command).toMatchObject({ exit_code: 0 });
  return result.stdout.trim();
};

const repository = [
  'cd /workspace && git init -q -b main && git config user.email a@b.c && git config user.name a',
  'for n in 1 2 3; do echo $n > base && git add . && git commit -qm "base $n"; done',
].join(' && ');

beforeAll(async () => {
  daemon = await daemonWithGit();
  agent = await Agent.overHttp(daemon);
});
afterAll(async () => {
  await agent?.client.close();
  await daemon?.[Symbol.asyncDispose]();
});

test('changes are committed with their author, shown, and pushed', async () => {
  await agent.ok('workspace_create', { name: 'commits' });
  await sh('commits', `${repository} && git init -q --bare /srv/up.git && git remote add origin /srv/up.git`);
  await agent.ok('file_write', { workspace_id: 'commits', path: 'base', content: 'changed\n' });
  expect(await agent.ok('git_diff', { workspace_id: 'commits' })).toMatchObject({
    diff: expect.stringContaining('+changed'),
    truncated: false,
    stat: expect.stringContaining('base'),
  });
  const commit = {
    workspace_id: 'commits',
    message: '-m is no option\n\nbody',
    author_name: 'Ann',
    author_email: 'ann@b.c',
  };
  expect(await agent.ok('git_commit', commit)).toMatchObject({
    status: 'committed',
    branch: 'main',
    summary: '-m is no option',
  });
  expect(await agent.ok('git_commit', commit)).toMatchObject({ status: 'nothing_to_commit' });
  expect(await sh('commits', 'cd /workspace && git log -1 --format=%an')).toBe('Ann');
  expect(await agent.ok('git_push', { workspace_id: 'commits' })).toMatchObject({
    remote: 'origin',
    branch: 'main',
    success: true,
  });
  expect(await sh('commits', 'git -C /srv/up.git show main:base')).toBe('changed');
  expect(await agent.refused('git_push', { workspace_id: 'commits', remote: '--exec=/bin/sh' })).toContain(
    'must not start with',
  );
  expect(await agent.refused('workspace_git_status', { workspace_id: 'commits', path: '/tmp' })).toMatch(
    /not a git repository.*\nNext: .*git_clone/,
  );
  await agent.ok('workspace_destroy', { workspace_id: 'commits' });
});

test('credentials show up in no answer, remote, file of the workspace or log of the daemon', async () => {
  const secret = 'ghp_0123456789abcdefghijABCDEFGHIJ012345';
  const other = 's3cret-without-a-known-shape';
  await agent.ok('workspace_create', { name: 'private' });
  await sh(
    'private',
    `mkdir -p /srv/user && git init -q --bare -b main /srv/user/repo.git && git config --global url./srv/.insteadOf https://example.test/`,
  );
  const said: unknown[] = [];
  const note = async (tool: string, args: Answer): Promise<void> => {
    said.push(await agent.call(tool, { workspace_id: 'private', ...args }));
  };
  await note('set_env', { vars: { GIT_TOKEN: secret } });
  await note('git_clone', {
    url: `https://user:${other}@example.test/user/repo.git`,
    path: '/workspace/repo',
  });
  await note('git_clone', {
    url: `https://${secret}@nowhere.invalid/user/repo.git`,
    path: '/workspace/none',
  });
  for (const url of [`ssh://git:${other}@nowhere.invalid/r.git`, `git://u:${other}@nowhere.invalid/r.git`]) {
    await note('git_clone', { url, path: '/workspace/none' });
    await note('git_push', { path: '/workspace/repo', remote: url });
    for (const answer of said.slice(-2))
      expect(JSON.stringify(answer)).toContain('only https and http take one');
  }
  await note('file_write', { path: '/workspace/repo/a', content: 'a' });
  await note('git_commit', { path: '/workspace/repo', message: 'first' });
  await note('git_push', { path: '/workspace/repo', set_upstream: true });
  await note('git_push', { path: '/workspace/repo', remote: `https://x:${other}@nowhere.invalid/r.git` });
  await note('workspace_info', {});
  await note('workspace_logs', {});
  await note('snapshot_create', { name: 'after' });
  for (const hidden of [secret, other]) expect(JSON.stringify(said)).not.toContain(hidden);
  expect(await sh('private', 'cd /workspace/repo && git remote get-url origin')).toBe('/srv/user/repo.git');
  expect(await sh('private', `grep -rlE '${secret}|${other}' /workspace /srv /root /tmp || true`)).toBe('');
  const logs = await readdir(join(daemon.home, 'log'));
  for (const name of logs) {
    const text = await readFile(join(daemon.home, 'log', name), 'utf8');
    for (const hidden of [secret, other]) expect(text).not.toContain(hidden);
  }
  await agent.ok('workspace_destroy', { workspace_id: 'private' });
});

test('a credential of set_env shows up nowhere, whatever the commands of the workspace do with it', async () => {
  const secret = 'hunter2/with=odd+signs';
  const encoded = encodeURIComponent(secret);
  const basic = Buffer.from(`x-access-token:${secret}`).toString('base64');
  await agent.ok('workspace_create', { name: 'leaky' });
  const here = { workspace_id: 'leaky' };
  await agent.ok('set_env', { ...here, vars: { GIT_TOKEN: secret, GREETING: 'hello' } });
  const said: unknown[] = [];
  const note = async <T extends Answer>(tool: string, args: Answer = {}): Promise<T> => {
    const result = await agent.call(tool, { ...here, ...args });
    said.push(result);
    return result.structuredContent as T;
  };
  const leak = `echo "$GREETING $GIT_TOKEN"; echo 'https://x:${encoded}@host'; printf 'x-access-token:%s' "$GIT_TOKEN" | base64`;

  expect(await note('exec', { command: leak })).toMatchObject({
    stdout: expect.stringMatching(/^hello \*\*\*hidden\*\*\*\n/),
  });
  await note('exec', { command: `{ ${leak}; } >&2; exit 3` });
  await note('exec', { command: `${leak}; exec sleep 1000`, timeout_secs: 0.5 });
  await note('exec', { command: 'printf "%s\\377" "$GIT_TOKEN"' });
  const cut = await note<{ stdout_file: string }>('exec', {
    command: `printf 1234567890; for n in 1 2 3; do ${leak}; done`,
    max_output_bytes: 24,
  });
  expect(await sh('leaky', `cat ${cut.stdout_file}`)).toContain('***');
  await note('exec', { command: 'echo "$ONCE_TOKEN"', env: { ONCE_TOKEN: `${secret}-once` } });
  await note('exec_parallel', { workspace_id: undefined, workspace_ids: ['leaky'], commands: leak });

  const { job_id } = await note<{ job_id: number }>('exec_background', {
    command: `{ ${leak}; } | tee /dev/stderr`,
  });
  expect(await note('exec_poll', { job_id, wait_secs: 60 })).toMatchObject({
    stdout: expect.stringContaining('hello'),
  });
  expect(await note('workspace_logs')).toMatchObject({
    stderr: expect.stringContaining('hello ***hidden***'),
  });
  said.push(await agent.client.readResource({ uri: `coppice://sandbox/leaky/job/${job_id}/log` }));
  said.push(await agent.client.listResources());

  // A server that tells what it was given: git passes that on.
  const hook = '/srv/told.git/hooks/pre-receive';
  await sh(
    'leaky',
    `${repository} && git init -q --bare /srv/told.git && git remote add origin /srv/told.git`,
  );
  await note('file_write', { path: hook, mode: '0755', content: `#!/bin/sh\n{ ${leak}; } >&2\nexit 1\n` });
  await note('git_push');
  expect(JSON.stringify(said.at(-1))).toContain('remote: hello ***hidden***');
  await note('git_push', {
    remote: `https://${secret.replace(/\W/g, '')}longenough:x-oauth-basic@nowhere.invalid/r`,
  });
  await note('git_clone', { url: `https://u:${encoded}@nowhere.invalid/r`, path: 'none' });
  await note('snapshot_create', { name: 'clean' });
  await note('snapshot_diff', { snapshot_name: 'clean' });

  for (const hidden of [
    secret,
    encoded,
    basic,
    basic.slice(22, -4),
    'hunter2',
    `${secret.replace(/\W/g, '')}longenough`,
  ])
    expect(JSON.stringify(said)).not.toContain(hidden);
  const files = await sh('leaky', "grep -rlE 'hunter2|aHVudGVyM' /workspace /srv /root /tmp /etc || true");
  expect(files).toBe(hook);
  for (const name of await readdir(join(daemon.home, 'log')))
    expect(await readFile(join(daemon.home, 'log', name), 'utf8')).not.toContain('hunter2');
  await agent.ok('workspace_destroy', here);
});

test('commits of forks are merged from the fork point on, binary files included', async () => {
  await agent.ok('workspace_create', { name: 'trunk' });
  await sh('trunk', repository);
  await agent.ok('snapshot_create', { workspace_id: 'trunk', name: 'golden' });
  expect(
    await agent.ok('workspace_batch_fork', { workspace_id: 'trunk', count: 3, name_prefix: 'limb' }),
  ).toMatchObject({
    success_count: 3,
    workers: expect.arrayContaining([expect.objectContaining({ name: 'limb-1' })]),
  });
  const commit = (workspace: string, command: string) =>
    sh(workspace, `cd /workspace && ${command} && git add . && git commit -qm "by ${workspace}"`);
  const digest = await commit('limb-1', 'head -c 300000 /dev/urandom > blob').then(() =>
    sh('limb-1', 'cd /workspace && git hash-object blob'),
  );
  await commit('limb-2', 'echo two > two');
  await commit('limb-2', 'echo clash-2 > base');
  await commit('limb-3', 'echo clash-3 > base');
  await commit('trunk', 'echo on > trunk-went-on');

  const merge = { source_workspaces: ['limb-1', 'limb-2', 'limb-3'], target_workspace: 'trunk' };
  expect(await agent.ok('workspace_merge', merge)).toMatchObject({
    success: false,
    strategy: 'sequential',
    total_commits_applied: 3,
    merged_sources: [
      { name: 'limb-1', commits: 1 },
      { name: 'limb-2', commits: 2 },
    ],
    conflicts: [{ files: ['base'] }],
  });
  expect(
    await sh('trunk', 'cd /workspace && git hash-object blob && cat two base && git status --porcelain'),
  ).toBe(`${digest}\ntwo\nclash-2`);
  expect(
    await agent.ok('workspace_merge', {
      ...merge,
      source_workspaces: ['limb-1'],
      strategy: 'branch-per-source',
    }),
  ).toMatchObject({
    success: true,
  });
  expect(await sh('trunk', 'cd /workspace && git log --format=%s merge/limb-1 -1')).toBe('by limb-1');
  for (const name of ['limb-1', 'limb-2', 'limb-3', 'trunk'])
    await agent.ok('workspace_destroy', { workspace_id: name });
});

test('a golden workspace is prepared once, and tasks run in forks of it that are destroyed at the end', async () => {
  const prepare = { name: 'gold', setup_commands: [repository, 'echo ready > /workspace/.git/ready'] };
  const first = await agent.ok('workspace_prepare', prepare);
  expect(first).toMatchObject({ snapshot_name: 'golden', reused_existing: false });
  expect(await agent.ok('workspace_prepare', prepare)).toEqual({ ...first, reused_existing: true });
  expect(
    await agent.refused('workspace_prepare', { name: 'bad', setup_commands: ['echo because >&2; exit 5'] }),
  ).toMatch(/exit code 5[\s\S]*because/);

  const task = (name: string, command: string) => ({ name, command: `cd /workspace && ${command}` });
  await agent.ok('vault_write', { path: 'style.md', content: 'use tabs' });
  const swarm = {
    golden_workspace: 'gold',
    tasks: [
      task(
        'one',
        'cat "$SHARED_CONTEXT" "$VAULT_CONTEXT" && echo 1 > one && git add . && git commit -qm one',
      ),
      task('two', 'echo 2 > two && git add . && git commit -qm two'),
      task('three', 'exit 3'),
    ],
    shared_context: 'be brief\n',
    vault_context: [{ kind: 'read', query: 'style.md' }],
    max_parallel: 2,
  };
  expect(await agent.refused('swarm_run', { ...swarm, merge_strategy: 'sequential' })).toContain(
    'merge_target',
  );
  const answer = await agent.ok('swarm_run', {
    ...swarm,
    merge_strategy: 'sequential',
    merge_target: 'gold',
  });
  expect(answer).toMatchObject({
    tasks: [
      { name: 'one', success: true, stdout: expect.stringMatching(/be brief[\s\S]*use tabs/) },
      { name: 'two', success: true },
      { name: 'three', success: false, exit_code: 3 },
    ],
    summary: { total_tasks: 3, succeeded: 2, failed: 1, workers_destroyed: 3 },
    merge: { success: true, total_commits_applied: 2 },
  });
  expect(await sh('gold', 'cd /workspace && cat one two')).toBe('1\n2');
  expect(await agent.ok('workspace_list')).toMatchObject({ workspaces: [{ name: 'gold' }] });
  await agent.ok('workspace_destroy', { workspace_id: 'gold' });
});
