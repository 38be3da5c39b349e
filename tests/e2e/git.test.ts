import { errorKinds } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import type { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { daemonWithGit } from '../mcp/git-image.ts';
import { runCli, shellIn } from './run-cli.ts';

const repository = [
  'mkdir -p /workspace && cd /workspace && git init -q -b main && git config user.email a@b.c && git config user.name a',
  'seq 20 > base && git add . && git commit -qm base',
].join(' && ');

describe('repositories of a sandbox and its fork', () => {
  let daemon: RunningDaemon;
  beforeAll(async () => {
    daemon = await daemonWithGit();
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  const sh = (sandbox: Sandbox, command: string): Promise<string> => shellIn(sandbox, '/workspace', command);
  const commit = (sandbox: Sandbox, command: string, subject: string): Promise<string> =>
    sh(sandbox, `${command} && git add --all && git commit -qm "${subject}"`);
  const subjects = async (sandbox: Sandbox): Promise<string[]> =>
    (await sh(sandbox, 'git log --reverse --format=%s')).split('\n');
  const pair = async (name: string): Promise<[Sandbox, Sandbox]> => {
    const trunk = await daemon.client.sandboxes.create({ name });
    await trunk.exec(repository);
    const [fork] = (await trunk.fork({ name: `${name}-fork` })).sandboxes;
    return [trunk, fork!];
  };
  const cli = (...argv: string[]) => runCli(daemon, ...argv);

  test.each(['sequential', 'cherry-pick', 'branch-per-source'] as const)(
    'a merge (%s) can be repeated: what came before is left out, what is new comes',
    async (strategy) => {
      const [trunk, fork] = await pair(`again-${strategy}`);
      await commit(fork, 'sed -i s/^5$/five/ base', 'five');
      await commit(trunk, 'sed -i s/^9$/nine/ base', 'nine');
      expect(await trunk.git.merge([fork.id], { strategy })).toMatchObject({ success: true, commits: 1 });
      const once = await subjects(trunk);
      expect(await trunk.git.merge([fork.id], { strategy })).toMatchObject({ success: true, commits: 0 });
      expect(await subjects(trunk)).toEqual(once);

      // The target goes on from what it got, so that the same commit would no longer fit.
      await commit(trunk, 'sed -i s/five/fifth/ base', 'fifth');
      await commit(fork, 'sed -i s/^15$/fifteen/ base', 'fifteen');
      expect(await trunk.git.merge([fork.id], { strategy })).toMatchObject({
        success: true,
        conflicts: [],
        commits: 1,
      });
      expect(await sh(trunk, 'sed -n "5p;9p;15p" base')).toBe('fifth\nnine\nfifteen');
      expect((await subjects(trunk)).filter((subject) => subject === 'five')).toHaveLength(1);
      for (const sandbox of [trunk, fork]) await sandbox.destroy();
    },
  );

  test.each(['sequential', 'cherry-pick'] as const)(
    'a merge (%s) can go the other way: commits that came from there are left out',
    async (strategy) => {
      const [trunk, fork] = await pair(`back-${strategy}`);
      await commit(fork, 'sed -i s/^5$/five/ base', 'five');
      await commit(trunk, 'sed -i s/^9$/nine/ base', 'nine');
      await trunk.git.merge([fork.id], { strategy });
      await commit(fork, 'sed -i s/five/fifth/ base', 'fifth');
      expect(await fork.git.merge([trunk.id], { strategy })).toMatchObject({ success: true, commits: 1 });
      expect(await subjects(fork)).toEqual(['base', 'five', 'fifth', 'nine']);
      expect(await trunk.git.merge([fork.id], { strategy })).toMatchObject({ success: true, commits: 1 });
      expect(await subjects(trunk)).toEqual(['base', 'nine', 'five', 'fifth']);
      expect(await sh(trunk, 'git hash-object base')).toBe(await sh(fork, 'git hash-object base'));
      for (const sandbox of [trunk, fork]) await sandbox.destroy();
    },
  );

  test('a commit that somebody brought over by hand is no conflict and no duplicate', async () => {
    const [trunk, fork] = await pair('by-hand');
    await commit(fork, 'sed -i s/^5$/five/ base', 'five');
    await commit(fork, 'sed -i s/^7$/seven/ base', 'seven');
    await commit(trunk, 'sed -i s/^5$/five/ base', 'five, by hand');
    expect(await trunk.git.merge([fork.id])).toMatchObject({ success: true, commits: 1 });
    expect(await subjects(trunk)).toEqual(['base', 'five, by hand', 'seven']);
    for (const sandbox of [trunk, fork]) await sandbox.destroy();
  });

  test('a repository is cloned, changed, compared, committed and pushed through the API and by `coppice git`', async () => {
    const secret = 's3cret-without-a-known-shape';
    await using box = await daemon.client.sandboxes.create({ name: 'remote' });
    await box.exec(
      'git init -q --bare -b main /srv/up.git && git config --global url./srv/.insteadOf https://example.test/',
    );
    const cloned = await box.git.clone(`https://user:${secret}@example.test/up.git`);
    expect(cloned).toEqual({
      path: '/workspace',
      commit_sha: null,
      url: 'https://example.test/up.git',
      branch: 'main',
    });
    await box.files.write('/workspace/a', 'one\n');
    const first = await box.git.commit('-m is no option', { author_name: 'Ann', author_email: 'ann@b.c' });
    expect(first.commit).toMatchObject({ branch: 'main', summary: '-m is no option' });
    expect(await box.git.commit('again')).toEqual({ path: '/workspace', commit: null });
    expect(await box.git.push()).toMatchObject({ remote: 'origin', branch: 'main' });
    expect(await sh(box, 'git -C /srv/up.git log --format="%an %s" main')).toBe('Ann -m is no option');

    await box.files.write('/workspace/a', 'two\n');
    expect(await box.git.diff()).toMatchObject({
      diff: expect.stringContaining('-one\n+two'),
      truncated: false,
    });
    expect(await box.git.diff({ maxBytes: 10 })).toMatchObject({ truncated: true });
    expect((await cli('git', 'diff', 'remote', 'a')).stdout).toContain('+two');
    expect((await cli('git', 'commit', 'remote', '-m', 'by hand')).stdout).toMatch(
      /^[0-9a-f]{7,} by hand\n$/,
    );
    expect((await cli('git', 'commit', 'remote', '-m', 'none')).stdout).toBe('nothing to commit\n');
    expect((await cli('git', 'push', 'remote')).stdout).toBe('pushed main to origin\n');
    expect((await cli('git', 'clone', 'remote', '/srv/up.git', '--path', '/tmp/copy')).stdout).toMatch(
      /^cloned \/srv\/up.git into \/tmp\/copy, at [0-9a-f]{10}\n$/,
    );

    const refused = await cli(
      'git',
      'clone',
      'remote',
      `https://u:${secret}@nowhere.invalid/r`,
      '--path',
      '/tmp/no',
    );
    expect(refused).toMatchObject({ code: errorKinds.conflict.exitCode });
    expect(refused.stderr).not.toContain(secret);
    await expect(box.git.push({ remote: '--exec=/bin/sh' })).rejects.toMatchObject({
      code: 'invalid_argument',
    });
    await expect(box.git.clone(`ssh://git:${secret}@nowhere.invalid/r.git`)).rejects.toMatchObject({
      code: 'invalid_argument',
      message: expect.not.stringContaining(secret),
    });
    await expect(box.git.clone('https://user:%zz@nowhere.invalid/r')).rejects.toMatchObject({
      code: 'conflict',
    });
    expect(await sh(box, `grep -rl '${secret}' /workspace /srv /root /tmp || true`)).toBe('');
  });

  test('`coppice git` shows the status and merges; a conflict is its exit code and leaves the target as it was', async () => {
    const [trunk, fork] = await pair('lines');
    await commit(fork, 'sed -i s/^5$/five/ base', 'five');
    await sh(fork, 'echo x > new');
    expect(await cli('git', 'status', fork.name)).toEqual({
      code: 0,
      stdout: 'on main\nuntracked  new\n',
      stderr: '',
    });
    expect((await cli('git', 'merge', fork.name, trunk.name)).stdout).toBe(
      `${fork.name}: 1 commit (it has changes that are not committed; they stay there)\n1 commit went into ${trunk.name}\n`,
    );
    await commit(trunk, 'sed -i s/^9$/nine/ base', 'nine');
    await commit(fork, 'sed -i s/^9$/neun/ base', 'neun');
    const before = await sh(trunk, 'git rev-parse HEAD');
    const clash = await cli('git', 'merge', fork.name, trunk.name);
    expect(clash).toMatchObject({
      code: errorKinds.conflict.exitCode,
      stdout: expect.stringContaining('left out, conflicts in base'),
    });
    expect(await sh(trunk, 'git status --porcelain && git rev-parse HEAD')).toBe(before);
    expect(await cli('git', 'status', trunk.name, '--path', '/tmp')).toMatchObject({
      stderr: expect.stringMatching(/\/tmp is not a git repository\nhint: Give the directory/),
    });
    expect(await cli('git', 'merge', trunk.name)).toMatchObject({
      code: errorKinds.invalid_argument.exitCode,
    });
    for (const sandbox of [trunk, fork]) await sandbox.destroy();
  });
});
