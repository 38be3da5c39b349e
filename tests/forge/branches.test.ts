import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { eventually, type RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { daemonWithGit } from '../mcp/git-image.ts';
import { GitClient, withToken } from './git-client.ts';

const program = join(import.meta.dirname, '../../packages/cli/src/main.ts');

describe('a branch of a ticket', () => {
  let daemon: RunningDaemon;
  let git: GitClient;
  let first: string;

  beforeAll(async () => {
    daemon = await daemonWithGit();
    git = await GitClient.make();
    first = await git.begin();
    const { clone_url } = await daemon.client.repositories.create({ name: 'app' });
    await git.ok('remote', 'add', 'origin', withToken(clone_url, daemon.token));
    await git.ok('push', '--quiet', 'origin', 'main');
  });
  afterAll(async () => {
    await git?.[Symbol.asyncDispose]();
    await daemon?.[Symbol.asyncDispose]();
  });

  const app = () => daemon.client.repositories.at('app');
  const branches = () => daemon.client.branches;
  const inside = async (id: string | null, script: string): Promise<string> => {
    const { stdout, stderr, exit_code } = await daemon.client.sandboxes
      .at(id!)
      .exec(`cd /workspace; ${script}`);
    expect(exit_code, stderr).toBe(0);
    return stdout.trim();
  };
  const commit = 'git -c user.name=A -c user.email=a@example.invalid commit -q';
  const ticket = async (title: string, type: 'feature' | 'bug' = 'feature') =>
    (await app().createIssue({ title, type })).id;
  const mainAt = async () => (await git.ok('ls-remote', 'origin', 'refs/heads/main')).slice(0, 40);

  test('goes from the ticket over an agent and its pull request to the merge', async () => {
    const id = await ticket('Add dark mode');
    const started = await branches().start({
      repository: 'app',
      ticket: id,
      run: { task: 'Add dark mode', command: 'cd /workspace && echo dark > theme.txt' },
    });
    expect(started).toMatchObject({ branch_name: `feature/${id}-add-dark-mode`, sha: first, success: true });
    await eventually('the run is over', async () =>
      ['completed', 'failed'].includes((await daemon.client.runs.get(started.run_id!)).state),
    );
    expect(await daemon.client.runs.get(started.run_id!)).toMatchObject({ outcome: 'succeeded' });
    const query = { repository: 'app', branch: id };
    const status = await branches().status(query);
    expect(status).toMatchObject({ state: 'in_review', ahead_by: 1, behind_by: 0, checks: 'none' });
    const pull = await app().pull(status.pr_number!);
    expect(pull).toMatchObject({ title: `[${id}] Add dark mode`, body: `Resolves #${id}`, mergeable: true });

    const merged = await branches().merge(query);
    expect(merged).toMatchObject({ success: true, state: 'merged', sha: null, sandbox_id: null });
    expect(await mainAt()).toBe(merged.merge_sha);
    await git.ok('fetch', '--quiet', 'origin', 'main');
    expect(await git.ok('show', 'FETCH_HEAD:theme.txt')).toBe('dark');
    expect(await app().issue(id)).toMatchObject({ state: 'closed' });
    expect((await daemon.client.sandboxes.list()).map(({ id: each }) => each)).not.toContain(
      started.sandbox_id,
    );
    expect(await branches().merge(query)).toMatchObject({ success: true, merge_sha: merged.merge_sha });
  });

  test('is made once, however often it is asked for, and the next one gets the next name', async () => {
    const id = await ticket('Say more', 'bug');
    const one = await branches().start({ repository: 'app', ticket: id });
    const both = await Promise.all([1, 2].map(() => branches().start({ repository: 'app', ticket: id })));
    expect(both).toEqual([one, one]);
    expect(one.branch_name).toBe(`fix/${id}-say-more`);
    await inside(one.sandbox_id, 'echo more > more.txt');
    const twice = [
      await branches().finish({ repository: 'app', branch: id }),
      await branches().finish({ repository: 'app', branch: id }),
    ];
    expect(twice[1]).toEqual(twice[0]);
    expect(await app().pulls()).toHaveLength(1);
    await branches().merge({ repository: 'app', branch: id });
    await git.ok('push', '--quiet', 'origin', `${first}:refs/heads/fix/${id}-say-more-2`);
    const next = await branches().start({ repository: 'app', ticket: id });
    expect(next.branch_name).toBe(`fix/${id}-say-more-3`);
    await daemon.client.sandboxes.at(next.sandbox_id!).destroy();
  });

  test('is not finished by a fork of its run', async () => {
    const { runs } = daemon.client;
    const id = await ticket('Try it twice');
    const run = { task: 'wait', command: 'sleep 600' };
    const started = await branches().start({ repository: 'app', ticket: id, run });
    await eventually('it works', async () => (await runs.get(started.run_id!)).state === 'running');
    expect(Object.keys((await runs.get(started.run_id!)).labels)).toHaveLength(2);
    const fork = await runs.fork(started.run_id!, { from: 1 });
    expect(fork.labels).toEqual({});
    for (const each of [fork.id, started.run_id!]) {
      await runs.stop(each);
      await runs.remove(each);
    }
    await daemon.client.sandboxes.at(started.sandbox_id!).destroy();
  });

  test('is never merged by force: conflicts are an answer, and the branch stays', async () => {
    const [ours, theirs] = [await ticket('Ours'), await ticket('Theirs')];
    for (const [id, text] of [
      [ours, 'ours'],
      [theirs, 'theirs'],
    ] as const) {
      const { sandbox_id } = await branches().start({ repository: 'app', ticket: id });
      await inside(sandbox_id, `echo ${text} > README.md`);
      await branches().finish({ repository: 'app', branch: id });
    }
    await branches().merge({ repository: 'app', branch: ours });
    const before = await mainAt();
    const refused = await branches().merge({ repository: 'app', branch: theirs });
    expect(refused).toMatchObject({ success: false, has_conflicts: true, state: 'in_review', behind_by: 1 });
    expect(refused.sha).toMatch(/^[0-9a-f]{40}$/);
    expect(await mainAt()).toBe(before);
    await daemon.client.sandboxes.at(refused.sandbox_id!).destroy();
  });

  test('of an agent that crashed is kept, with its sandbox and what is in it', async () => {
    const id = await ticket('Crash');
    const started = await branches().start({
      repository: 'app',
      ticket: id,
      run: { task: 'x', command: 'cd /workspace && echo half > half.txt; exit 7' },
    });
    await eventually(
      'the run has failed',
      async () => (await daemon.client.runs.get(started.run_id!)).state === 'failed',
    );
    expect(await branches().status({ repository: 'app', branch: id })).toMatchObject({
      state: 'started',
      sha: started.sha,
      sandbox_id: started.sandbox_id,
      pr_number: null,
    });
    expect(await inside(started.sandbox_id, 'cat half.txt')).toBe('half');
    const rescued = await branches().finish({ repository: 'app', branch: id, message: 'What was left' });
    expect(rescued).toMatchObject({ state: 'in_review', ahead_by: 1 });
    await daemon.client.sandboxes.at(started.sandbox_id!).destroy();
  });

  test('waits for checks and reviews, and takes the lack of checks for no success', async () => {
    const id = await ticket('Careful');
    const { sandbox_id } = await branches().start({ repository: 'app', ticket: id });
    await inside(sandbox_id, 'echo careful > careful.txt');
    const query = { repository: 'app', branch: id };
    const { pr_number, sha, checks } = await branches().finish(query);
    expect(checks).toBe('none');
    const report = (state: 'pending' | 'failure' | 'success') =>
      app().reportCheck({ sha: sha!, name: 'ci', state });
    for (const state of ['pending', 'failure'] as const) {
      await report(state);
      await expect(branches().merge(query)).rejects.toMatchObject({ code: 'wrong_state' });
      expect((await branches().status(query)).checks).toBe(state);
    }
    await report('success');
    await app().review(pr_number!, { state: 'changes_requested' });
    await expect(branches().merge(query)).rejects.toMatchObject({ code: 'wrong_state' });
    await app().review(pr_number!, { state: 'approved' });
    expect(await branches().merge(query)).toMatchObject({
      success: true,
      checks: 'success',
      reviews: 'approved',
    });
  });

  test('takes nothing from its sandbox but commits on top of it, and gives it no login', async () => {
    const id = await ticket('Hostile');
    const { sandbox_id, branch_name } = await branches().start({ repository: 'app', ticket: id });
    const query = { repository: 'app', branch: id };
    expect(await inside(sandbox_id, 'env; git config --list; git remote -v')).not.toMatch(/cpt_|:\/\//);
    await expect(branches().finish(query)).rejects.toMatchObject({ code: 'wrong_state' });
    await inside(sandbox_id, `echo 1 > one.txt; git add -A; ${commit} -m one`);
    const { sha } = await branches().finish(query);
    await inside(sandbox_id, `${commit} --amend -m another`);
    await expect(branches().finish(query)).rejects.toMatchObject({
      code: 'conflict',
      details: { reason: 'head_moved' },
    });
    expect((await branches().status(query)).sha).toBe(sha);
    await inside(sandbox_id, 'git switch -q -c elsewhere');
    await expect(branches().finish(query)).rejects.toMatchObject({ code: 'wrong_state' });
    await inside(
      sandbox_id,
      `git switch -q ${branch_name}; git reset -q --hard ${sha}; git update-ref refs/heads/main ${sha}`,
    );
    const before = await mainAt();
    await inside(sandbox_id, `mkdir -p x; echo 2 > x/two.txt; git add -A; ${commit} -m two`);
    expect((await branches().finish(query)).ahead_by).toBe(2);
    expect(await mainAt()).toBe(before);
    await daemon.client.sandboxes.at(sandbox_id!).destroy();
  });

  test('is used by its command', async () => {
    const coppice = async (...args: readonly string[]) => {
      const env = { ...process.env, COPPICE_HOME: daemon.home };
      return (await promisify(execFile)(process.execPath, [program, ...args], { env })).stdout.trim();
    };
    expect(
      await coppice('branch', 'start', 'app', 'WEB-7', '--title', 'From elsewhere', '--type', 'docs'),
    ).toContain('docs/WEB-7-from-elsewhere: started');
    const { sandbox_id } = await branches().status({ repository: 'app', branch: 'WEB-7' });
    await inside(sandbox_id, 'echo x > elsewhere.txt');
    expect(await coppice('branch', 'finish', 'app', 'WEB-7')).toContain('in_review, 1 ahead of main');
    expect(await coppice('branch', 'status', 'app', 'docs/WEB-7-from-elsewhere')).toContain('checks: none');
    expect(await coppice('branch', 'merge', 'app', 'WEB-7')).toContain('merged as');
    expect(await coppice('branch', 'ls', 'app')).toContain('docs/WEB-7-from-elsewhere');
  });
});
