import { execFile, spawn } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { eventually, type RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { daemonWithGit } from '../mcp/git-image.ts';
import { giteaDialect } from './stand-in/gitea-dialect.ts';
import { githubDialect } from './stand-in/github-dialect.ts';
import { gitlabDialect } from './stand-in/gitlab-dialect.ts';
import { StandIn, token } from './stand-in/stand-in.ts';

const program = join(import.meta.dirname, '../../packages/cli/src/main.ts');
let daemon: RunningDaemon;
beforeAll(async () => {
  daemon = await daemonWithGit();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

describe.each([githubDialect, gitlabDialect, giteaDialect])('a repository of $kind', (dialect) => {
  const { kind } = dialect;
  let standIn: StandIn;
  beforeAll(async () => {
    standIn = await StandIn.start(dialect);
    await daemon.client.repositories.create({
      name: kind,
      kind,
      url: standIn.url,
      remote: 'acme/app',
      token,
    });
  });
  afterAll(async () => {
    await daemon.client.repositories.at(kind).remove();
    await standIn.close();
  });
  const inside = async (id: string | null, script: string): Promise<string> => {
    const { stdout, stderr, exit_code } = await daemon.client.sandboxes
      .at(id!)
      .exec(`cd /workspace; ${script}`);
    expect(exit_code, stderr).toBe(0);
    return stdout.trim();
  };

  test('goes from its issue over a sandbox to a merge there, and its token is nowhere but in the gateway', async () => {
    const { branches, repositories } = daemon.client;
    expect(await repositories.at(kind).info()).toMatchObject({
      kind,
      default_branch: 'main',
      clone_url: `${standIn.url}/acme/app.git`,
    });
    const started = await branches.start({ repository: kind, ticket: '1' });
    expect(started).toMatchObject({ branch_name: 'feature/1-dark-mode', state: 'started' });
    expect(await inside(started.sandbox_id, 'cat README.md')).toBe('hello');
    await inside(started.sandbox_id, 'echo dark > theme.css');
    // The answer to the opening is lost: it is looked for, and not opened again.
    standIn.trouble.push({
      when: ({ method, path }) => method === 'POST' && /^\/(pulls|merge_requests)$/.test(path),
      answer: undefined,
    });
    const finished = await branches.finish({ repository: kind, branch: '1' });
    expect(finished).toMatchObject({ state: 'in_review', ahead_by: 1, behind_by: 0 });
    expect(await standIn.forge.pulls('all')).toHaveLength(1);
    const tip = await standIn.repository.branch('feature/1-dark-mode');
    expect(tip?.sha).toBe(finished.sha);
    expect(await standIn.repository.run(['show', `${tip!.sha}:theme.css`])).toBe('dark');

    // Of the disks, which are a large file, the sandbox tells itself.
    const files = ['-xdev', '-type', 'f', '-size', '-65536k', '-exec', 'grep', '-laF', token, '{}', '+'];
    const { stdout } = await promisify(execFile)('find', [daemon.home, ...files]).catch(
      (error: { stdout: string }) => error,
    );
    expect(stdout).toBe('');
    const found = await inside(
      started.sandbox_id,
      `env; grep -rlF '${token}' /root /workspace /tmp /etc /run 2>/dev/null; true`,
    );
    expect(found).not.toContain(token);
    expect((await daemon.client.secrets.list()).map(({ name }) => name)).toEqual([]);

    expect(await branches.merge({ repository: kind, branch: '1' })).toMatchObject({ state: 'merged' });
    expect(await standIn.repository.run(['show', 'main:theme.css'])).toBe('dark');
    expect(await standIn.repository.branch('feature/1-dark-mode')).toBeUndefined();
  });

  test('never overwrites what somebody else pushed meanwhile', async () => {
    const { branches } = daemon.client;
    const started = await branches.start({ repository: kind, ticket: 'T-2', title: 'Another' });
    await inside(started.sandbox_id, 'echo mine > mine.txt');
    const before = (await standIn.repository.branch(started.branch_name))!.sha;
    const theirs = await standIn.repository.run(
      ['commit-tree', '-p', before, '-m', 'theirs', `${before}^{tree}`],
      {
        env: {
          GIT_AUTHOR_NAME: 'T',
          GIT_AUTHOR_EMAIL: 't@example.invalid',
          GIT_COMMITTER_NAME: 'T',
          GIT_COMMITTER_EMAIL: 't@example.invalid',
        },
      },
    );
    await standIn.repository.moveBranch(started.branch_name, theirs, before);
    await expect(branches.finish({ repository: kind, branch: 'T-2' })).rejects.toMatchObject({
      code: 'conflict',
    });
    expect((await standIn.repository.branch(started.branch_name))!.sha).toBe(theirs);
    await daemon.client.sandboxes.at(started.sandbox_id!).destroy();
  });

  test('is examined by its doctor, which says what a token lacks and leaves nothing there', async () => {
    const repository = daemon.client.repositories.at(kind);
    const well = await repository.doctor();
    expect(well.steps.filter(({ ok }) => !ok)).toEqual([]);
    expect(well.ok).toBe(true);
    const scratch = async () =>
      (await standIn.repository.branches()).filter(({ name }) => name.startsWith('coppice-doctor/'));
    expect(await scratch()).toEqual([]);
    expect(
      (await standIn.forge.pulls('open')).filter(({ head }) => head.startsWith('coppice-doctor/')),
    ).toEqual([]);
    standIn.forbidden.push('POST /statuses/', 'POST /pulls', 'POST /merge_requests');
    try {
      const ill = await repository.doctor();
      const failed = ill.steps.filter(({ ok }) => !ok);
      expect(failed.map(({ step }) => step)).toEqual(['open a draft pull request']);
      expect(failed[0]!.detail).toMatch(/The token needs .*(Pull requests|scope|write:)/);
      expect(await scratch()).toEqual([]);
    } finally {
      standIn.forbidden.length = 0;
    }
  });

  test('is registered by its command, with a token from standard input that the forge must know', async () => {
    const run = (secret: string, ...args: string[]) =>
      new Promise<{ code: number | null; stdout: string; stderr: string }>((resolve) => {
        const child = spawn(process.execPath, [program, 'forge', ...args], {
          env: { ...process.env, COPPICE_HOME: daemon.home },
          stdio: ['pipe', 'pipe', 'pipe'],
        });
        let [stdout, stderr] = ['', ''];
        child.stdout.on('data', (text) => (stdout += text));
        child.stderr.on('data', (text) => (stderr += text));
        child.on('close', (code) => resolve({ code, stdout, stderr }));
        child.stdin.end(secret);
      });
    const place = ['acme/app', '--kind', kind, '--url', standIn.url];
    const wrong = await run('not-the-token', 'add', 'mine', ...place);
    expect(wrong).toMatchObject({ stdout: '', stderr: expect.stringContaining('401') });
    expect(wrong.code).not.toBe(0);
    expect((await daemon.client.repositories.list()).some(({ name }) => name === 'mine')).toBe(false);
    expect(await run(token, 'add', 'mine', ...place)).toMatchObject({
      code: 0,
      stdout: `${standIn.url}/acme/app.git\n`,
    });
    const doctor = await run('', 'doctor', 'mine');
    expect(doctor).toMatchObject({ code: 0, stdout: expect.stringContaining('ok      push a commit to it') });
    expect(await run('', 'rm', 'mine')).toMatchObject({ code: 0 });
    await eventually('it is forgotten', async () =>
      (await daemon.client.repositories.list()).every(({ name }) => name !== 'mine'),
    );
  });
});
