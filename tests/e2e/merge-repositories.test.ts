import { CoppiceError, errorKinds } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import type { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Agent } from '../mcp/agent.ts';
import { daemonWithGit } from '../mcp/git-image.ts';
import { runCli, shellIn } from './run-cli.ts';

const repository = [
  'mkdir -p /workspace && cd /workspace && git init -q -b main && git config user.email a@b.c && git config user.name a',
  'seq 20 > base && printf "\\0\\1" > bytes && git add . && git commit -qm base && echo ignored > .gitignore && git add . && git commit -qm second',
].join(' && ');

describe.each(['container', 'gvisor'] as const)('merges of repositories on %s', (driver) => {
  let daemon: RunningDaemon;
  beforeAll(async () => {
    daemon = await daemonWithGit({ default_driver: driver });
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  const sh = (sandbox: Sandbox, command: string): Promise<string> => shellIn(sandbox, '/workspace', command);
  const commit = (sandbox: Sandbox, command: string, subject: string): Promise<string> =>
    sh(sandbox, `${command} && git add --all && git commit -qm "${subject}"`);
  const subjects = async (sandbox: Sandbox): Promise<string[]> =>
    (await sh(sandbox, 'git log --format=%s')).split('\n').sort();
  /** Nothing changed, nothing broken, and every commit can be reached. */
  const assertSound = async (sandbox: Sandbox): Promise<void> => {
    expect(await sh(sandbox, 'git status --porcelain')).toBe('');
    expect(await sh(sandbox, 'git fsck --strict --no-reflogs 2>&1')).not.toMatch(
      /dangling commit|missing|error/,
    );
  };
  const pair = async (name: string): Promise<[Sandbox, Sandbox]> => {
    for (const { id } of await daemon.client.sandboxes.list()) await daemon.client.sandboxes.at(id).destroy();
    const dev = await daemon.client.sandboxes.create({ name });
    await dev.exec(repository);
    const [fork] = (await dev.fork({ name: `${name}-fork` })).sandboxes;
    return [dev, fork!];
  };
  const failure = (work: Promise<unknown>): Promise<CoppiceError> =>
    work.then(
      () => Promise.reject(new Error('it should have failed')),
      (error: unknown) => (error instanceof CoppiceError ? error : Promise.reject(error)),
    );
  const cli = (...argv: string[]) => runCli(daemon, ...argv);

  test('a merge keeps the commits of both sides, again and again and in both directions', async () => {
    const [dev, fork] = await pair('both');
    const [second] = (await dev.fork({ name: 'both-second' })).sandboxes;
    await commit(fork, 'sed -i s/^5$/five/ base && echo new > new', 'five');
    await commit(dev, 'sed -i s/^15$/fifteen/ base', 'fifteen');
    await commit(second!, 'rm bytes && mkdir deep && echo x > deep/x', 'deep');
    const merged = await dev.merge(fork);
    expect(merged).toMatchObject({
      applied: true,
      conflicts: [],
      repositories: [{ path: '/workspace', commits: 2 }],
    });
    expect(await sh(dev, 'sed -n "5p;15p" base; cat new')).toBe('five\nfifteen\nnew');
    await assertSound(dev);
    expect(await dev.merge(fork)).toMatchObject({ applied: true, changes: [], undo_snapshot_id: null });

    await dev.merge(second!);
    expect(await subjects(dev)).toEqual(
      [
        'Merge sandbox both-fork',
        'Merge sandbox both-second',
        'base',
        'deep',
        'fifteen',
        'five',
        'second',
      ].sort(),
    );
    expect(await sh(dev, 'ls; cat deep/x')).toBe('base\ndeep\nnew\nx');
    await assertSound(dev);

    // The other way it is the same history, so that it only goes forward.
    await fork.merge(dev);
    expect(await sh(fork, 'git rev-parse HEAD')).toBe(await sh(dev, 'git rev-parse HEAD'));
    await assertSound(fork);
    await commit(fork, 'echo more >> new', 'more');
    await commit(dev, 'sed -i s/^9$/nine/ base', 'nine');
    await dev.merge(fork);
    expect(await sh(dev, 'cat new; sed -n 9p base')).toBe('new\nmore\nnine');
    await assertSound(dev);

    await dev.restore(merged.undo_snapshot_id!);
    expect(await subjects(dev)).toEqual(['base', 'fifteen', 'second']);
    await assertSound(dev);
    for (const sandbox of [dev, fork, second!]) await sandbox.destroy();
  });

  test('conflicts are named by path, a side settles the lines that clash, and before that nothing is written', async () => {
    const [dev, fork] = await pair('clash');
    await commit(fork, 'sed -i "s/^5$/theirs/;s/^18$/their end/" base && printf "\\0\\2" > bytes', 'theirs');
    await commit(dev, 'sed -i "s/^5$/ours/;s/^1$/our start/" base && printf "\\0\\3" > bytes', 'ours');
    const before = await sh(dev, 'git rev-parse HEAD');
    const refused = await failure(dev.merge(fork));
    expect(refused.code).toBe('conflict');
    expect(refused.details?.conflicts).toEqual([
      { path: '/workspace/base', ours: 'modified', theirs: 'modified' },
      { path: '/workspace/bytes', ours: 'modified', theirs: 'modified' },
    ]);
    expect(await sh(dev, 'git status --porcelain; git rev-parse HEAD')).toBe(before);
    const half = await cli('merge', fork.name, dev.name, '--choose', '/workspace/base=ours');
    expect(half).toMatchObject({ code: errorKinds.conflict.exitCode });
    expect(half.stderr).toContain('C /workspace/bytes (here modified, there modified)');
    const done = await cli(
      'merge',
      fork.name,
      dev.name,
      '--choose',
      '/workspace/base=ours',
      '--prefer',
      'theirs',
    );
    expect(done).toMatchObject({ code: 0, stdout: expect.stringContaining('/workspace: 2 commits by git') });
    expect(await sh(dev, 'sed -n "1p;5p;18p" base; git hash-object bytes')).toBe(
      'our start\nours\ntheir end\n8835708590a9afa236e1bbad18df9d23de82ccd3',
    );
    expect(await subjects(dev)).toEqual(
      ['Merge sandbox clash-fork', 'base', 'ours', 'second', 'theirs'].sort(),
    );
    await assertSound(dev);
    expect(await dev.merge(fork)).toMatchObject({ changes: [], conflicts: [] });
    for (const sandbox of [dev, fork]) await sandbox.destroy();
  });

  test('what is not committed stops a merge of commits and is never lost', async () => {
    const [dev, fork] = await pair('dirty');
    await commit(fork, 'sed -i s/^5$/five/ base', 'five');
    await commit(dev, 'sed -i s/^15$/fifteen/ base', 'fifteen');
    await sh(fork, 'echo edited >> .gitignore');
    const theirs = await failure(dev.merge(fork));
    expect([theirs.code, theirs.message]).toEqual(['wrong_state', expect.stringContaining('.gitignore')]);
    expect(theirs.hint).toContain('Commit in dirty-fork');
    await sh(fork, 'git commit -qam edited');
    await sh(dev, 'sed -i s/^9$/nine/ base');
    const ours = await failure(dev.merge(fork));
    expect([ours.code, ours.message]).toEqual(['wrong_state', expect.stringContaining('base')]);
    expect(await sh(dev, 'sed -n 9p base')).toBe('nine');
    // What the merge does not touch may be changed: it stays as it is.
    await sh(dev, 'git checkout -q base && echo local > bytes');
    await dev.merge(fork);
    expect(await sh(dev, 'cat bytes; git status --porcelain')).toBe('local\n M bytes');
    for (const sandbox of [dev, fork]) await sandbox.destroy();
  });

  test('files that git does not look after are merged as files, and a side that only looked brings its files', async () => {
    const [dev, fork] = await pair('files');
    await commit(fork, 'sed -i s/^5$/five/ base', 'five');
    await commit(dev, 'sed -i s/^15$/fifteen/ base', 'fifteen');
    await sh(fork, 'echo cache > ignored; echo x > /root/outside');
    await sh(dev, 'echo mine > /root/mine');
    await dev.merge(fork);
    expect(await sh(dev, 'cat ignored /root/outside /root/mine')).toBe('cache\nx\nmine');
    await assertSound(dev);
    // Both have another index now, and no commit is new there.
    await sh(fork, 'echo edited >> base && git status && git add base');
    await commit(dev, 'echo z > z', 'z');
    const head = await sh(dev, 'git rev-parse HEAD');
    expect(await dev.merge(fork, { prefer: 'theirs' })).toMatchObject({ repositories: [] });
    expect(await sh(dev, 'git rev-parse HEAD; git status --porcelain; tail -n 1 base')).toBe(
      `${head}\n M base\nedited`,
    );
    for (const sandbox of [dev, fork]) await sandbox.destroy();
  });

  test('branches, tags and stashes of both sides are there afterwards', async () => {
    const [dev, fork] = await pair('refs');
    await sh(dev, 'git branch shared');
    await fork.merge(dev);
    await sh(fork, 'git switch -q shared && echo s > s && git add s && git commit -qm shared-there');
    await sh(
      fork,
      'git tag there && git switch -q -c topic && echo t > t && git add t && git commit -qm topic',
    );
    await sh(fork, 'echo stashed >> base && git stash -q');
    await sh(dev, 'git switch -q shared && echo h > h && git add h && git commit -qm shared-here');
    await sh(dev, 'git switch -q main && echo m > m && git add m && git commit -qm main-here');
    await dev.merge(fork);
    expect(await sh(dev, 'git for-each-ref --format="%(refname)"')).toBe(
      'refs/heads/main\nrefs/heads/shared\nrefs/heads/topic\nrefs/stash\nrefs/tags/there',
    );
    expect(await sh(dev, 'git log --format=%s shared | sort')).toBe(
      'Merge sandbox refs-fork\nbase\nsecond\nshared-here\nshared-there',
    );
    expect(await sh(dev, 'git branch --show-current; ls')).toBe('main\nbase\nbytes\nm\ns\nt');
    expect(await sh(dev, 'git stash list')).toContain('WIP on topic');
    await assertSound(dev);
    for (const sandbox of [dev, fork]) await sandbox.destroy();
  });

  test('stopped sandboxes are merged alike, and so is a repository of another user', async () => {
    const [dev, fork] = await pair('still');
    for (const sandbox of [dev, fork]) await sh(sandbox, 'chown -R 1000:1000 /workspace');
    const as = (sandbox: Sandbox, command: string) =>
      sandbox.exec(`cd /workspace && ${command}`, { user: '1000:1000', env: { HOME: '/tmp' } });
    await as(fork, 'sed -i s/^5$/five/ base && git commit -qam five');
    await as(dev, 'sed -i s/^15$/fifteen/ base && git commit -qam fifteen');
    for (const sandbox of [dev, fork]) await sandbox.stop({ grace_s: 0 });
    expect(await dev.merge(fork, { dry_run: true })).toMatchObject({ applied: false, conflicts: [] });
    expect(await dev.merge(fork)).toMatchObject({ repositories: [{ path: '/workspace', commits: 2 }] });
    await dev.start();
    expect((await as(dev, 'git log --format=%s | sort')).stdout).toBe(
      'Merge sandbox still-fork\nbase\nfifteen\nfive\nsecond\n',
    );
    expect((await as(dev, 'git status --porcelain')).stdout).toBe('');
    expect(await sh(dev, 'find . ! -user 1000')).toBe('');
    for (const sandbox of [dev, fork]) await sandbox.destroy();
  });

  test('repositories that have nothing in common, and parts of one, are refused with what to do', async () => {
    const [dev, fork] = await pair('apart');
    await commit(fork, 'echo a > a', 'a');
    await commit(dev, 'echo b > b', 'b');
    const part = await failure(dev.merge(fork, { exclude: '/workspace/a' }));
    expect([part.code, part.hint]).toEqual(['invalid_argument', expect.stringContaining('/workspace/.git')]);
    await dev.merge(fork, { exclude: '/workspace/.git' });
    expect(await sh(dev, 'git status --porcelain; cat a')).toBe('?? a\na');
    await sh(dev, 'rm a');
    await fork.exec(
      `rm -rf /workspace && ${repository} && git commit --amend -qm other --date=2001-01-01T00:00:00Z`,
    );
    await sh(fork, 'git checkout -q --orphan alone && git commit -qm alone && git branch -qD main');
    const unrelated = await failure(dev.merge(fork));
    expect([unrelated.code, unrelated.message]).toEqual([
      'conflict',
      expect.stringContaining('no commit in common'),
    ]);
    await assertSound(dev);
    for (const sandbox of [dev, fork]) await sandbox.destroy();
  });

  test('agents merge the commits of their workspaces with one tool', async () => {
    await using agent = await Agent.overHttp(daemon);
    await agent.ok('workspace_create', { name: 'agents' });
    const run = (workspace_id: string, command: string) => agent.ok('exec', { workspace_id, command });
    await run('agents', repository);
    await agent.ok('workspace_fork', { workspace_id: 'agents', new_name: 'agents-fork' });
    for (const [name, line] of [
      ['agents', '5'],
      ['agents-fork', '15'],
    ] as const)
      await run(
        name,
        `cd /workspace && sed -i s/^${line}$/${name}/ base && echo x > ${name}.log && git commit -qam ${name}`,
      );
    expect(
      await agent.ok('file_merge', { from: 'agents-fork', into: 'agents', exclude: ['/tmp'] }),
    ).toMatchObject({ applied: true, repositories: [{ path: '/workspace', commits: 2 }] });
    expect((await run('agents', 'cd /workspace && git log --format=%s | sort')).stdout).toBe(
      'Merge sandbox agents-fork\nagents\nagents-fork\nbase\nsecond\n',
    );
    for (const workspace_id of ['agents', 'agents-fork'])
      await agent.ok('workspace_destroy', { workspace_id });
  });
});
