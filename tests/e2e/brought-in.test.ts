import { execFileSync } from 'node:child_process';
import { chmod, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CliHome } from './cli-home.ts';

let cli: CliHome;
beforeAll(async () => {
  cli = await CliHome.start();
});
afterAll(() => cli?.remove(), 300_000);

const env = {
  ...process.env,
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_AUTHOR_NAME: 'a',
  GIT_AUTHOR_EMAIL: 'a@localhost',
  GIT_COMMITTER_NAME: 'a',
  GIT_COMMITTER_EMAIL: 'a@localhost',
};
const git = (cwd: string, ...args: string[]): string =>
  execFileSync('git', args, { cwd, env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim();

/** A directory of the host with text, bytes that are no text, a program, and something to delete. */
const source = async (name: string): Promise<string> => {
  const directory = join(cli.directory, name);
  await mkdir(join(directory, 'sub'), { recursive: true });
  await writeFile(join(directory, 'text'), 'one\ntwo\nthree\n');
  await writeFile(join(directory, 'bytes'), Buffer.from([0, 255, 254, 10, 128]));
  await writeFile(join(directory, 'sub/gone'), 'x');
  await writeFile(join(directory, 'run'), '#!/bin/sh\n');
  await chmod(join(directory, 'run'), 0o755);
  return directory;
};

const work =
  "printf 'one\\nTWO\\nthree\\n' > text; printf '\\377\\000\\001' > bytes; rm sub/gone; echo new > new";

describe('a directory that was brought in', () => {
  let directory: string;
  beforeAll(async () => {
    directory = await source('plain');
    await cli.ok('create', 'copied', '--copy-in', directory);
    await cli.ok('exec', 'copied', `test -x run && ${work}`);
  });

  test('is part of snapshots and forks', async () => {
    await cli.ok('fork', 'copied', 'fork');
    expect(await cli.ok('exec', 'fork', 'cat text new')).toBe('one\nTWO\nthree\nnew');
    await cli.ok('restore', 'copied', 'brought-in');
    expect(await cli.ok('exec', 'copied', 'cat text')).toBe('one\ntwo\nthree');
    await cli.ok('exec', 'copied', work);
  });

  test('comes back as a patch that git applies, bytes that are no text included', async () => {
    const patch = join(cli.directory, 'change.patch');
    const answer = await cli.json<{ files: string[] }>('pull', 'copied', '--patch', patch);
    expect(answer.files.sort()).toEqual(['bytes', 'new', 'sub/gone', 'text']);
    const copy = await source('copy');
    git(copy, 'init', '-q');
    git(copy, 'apply', patch);
    expect(await readFile(join(copy, 'bytes'))).toEqual(Buffer.from([255, 0, 1]));
    expect((await cli.run(['pull', 'copied', '--patch', '-'])).stdout).toContain('+TWO');
  });

  test('comes back into a directory: what changed elsewhere in it stays, and a conflict changes nothing', async () => {
    const target = await source('target');
    await writeFile(join(target, 'mine'), 'mine');
    await cli.ok('pull', 'fork', '--into', target);
    expect(await readFile(join(target, 'text'), 'utf8')).toBe('one\nTWO\nthree\n');
    expect(await readFile(join(target, 'mine'), 'utf8')).toBe('mine');
    await expect(readFile(join(target, 'sub/gone'))).rejects.toThrow('ENOENT');

    const clash = await source('clash');
    await writeFile(join(clash, 'text'), 'one\nmine\nthree\n');
    const refused = await cli.run(['pull', 'copied', '--into', clash]);
    expect(refused.code).toBe(8);
    expect(refused.stderr).toContain('text');
    await expect(readFile(join(clash, 'new'))).rejects.toThrow('ENOENT');
  });

  test('that was never there is said so, as is a sandbox into which nothing was brought', async () => {
    const missing = await cli.run(['create', 'none', '--copy-in', join(cli.directory, 'absent')]);
    expect([missing.code, missing.stderr]).toEqual([2, expect.stringContaining('is no directory')]);
    await cli.ok('create', 'bare');
    const refused = await cli.run(['pull', 'bare', '--into', cli.directory]);
    expect([refused.code, refused.stderr]).toEqual([7, expect.stringContaining('nothing was brought in')]);
    expect((await cli.run(['pull', 'bare'])).code).toBe(2);
  });

  test('never makes git of this machine run what the sandbox has written', async () => {
    const mark = join(cli.directory, 'ran');
    const hostile = `mkdir -p .git/hooks sub/.git; printf '#!/bin/sh\\ntouch ${mark}\\n' > .git/hooks/post-index-change
      chmod +x .git/hooks/post-index-change; printf '[core]\\n fsmonitor = touch ${mark}\\n' > .git/config
      cp .git/config sub/.git/config; echo 'ref: refs/heads/x' > .git/HEAD; mkdir -p .git/objects .git/refs
      printf '* filter=evil diff=evil\\n' > .gitattributes`;
    await cli.ok('exec', 'fork', hostile);
    const target = await source('hostile-target');
    await cli.ok('pull', 'fork', '--into', target);
    expect(await readFile(join(target, '.gitattributes'), 'utf8')).toContain('evil');
    await expect(readFile(join(target, '.git/config'))).rejects.toThrow('ENOENT');
    await expect(readFile(mark)).rejects.toThrow('ENOENT');
  });
});

describe('a repository that was cloned in', () => {
  test('is on a branch of its own, and its result becomes a branch here', async () => {
    const repository = await source('repository');
    git(repository, 'init', '-q', '-b', 'main');
    git(repository, 'add', '.');
    git(repository, 'commit', '-qm', 'first');
    const base = git(repository, 'rev-parse', 'HEAD');
    await writeFile(join(repository, 'uncommitted'), 'stays here');
    const made = await cli.run(['create', 'cloned', '--clone', repository]);
    expect([made.code, made.stderr]).toEqual([0, expect.stringContaining('not committed')]);
    expect(await cli.ok('exec', 'cloned', 'cat .git/HEAD; ls')).toBe(
      'ref: refs/heads/coppice/cloned\nbytes\nrun\nsub\ntext',
    );
    await cli.ok('exec', 'cloned', work);
    const { commit } = await cli.json<{ commit: string }>(
      'pull',
      'cloned',
      '--branch',
      'agent',
      '--repo',
      repository,
    );
    expect(git(repository, 'rev-parse', 'agent')).toBe(commit);
    expect(git(repository, 'rev-parse', 'agent^')).toBe(base);
    expect(git(repository, 'show', 'agent:text')).toBe('one\nTWO\nthree');
    expect(git(repository, 'diff', '--name-only', base, 'agent').split('\n')).toEqual([
      'bytes',
      'new',
      'sub/gone',
      'text',
    ]);
    expect(git(repository, 'rev-parse', 'HEAD')).toBe(base);
    const again = await cli.run(['pull', 'cloned', '--branch', 'agent', '--repo', repository]);
    expect(again.code).toBe(6);
    await rm(repository, { recursive: true });
  });

  test('brings the commits that were made inside, and what was not committed as one more', async () => {
    const repository = await source('with-commits');
    git(repository, 'init', '-q', '-b', 'main');
    git(repository, 'add', '.');
    git(repository, 'commit', '-qm', 'first');
    await cli.ok('create', 'committer', '--clone', repository);
    const libraries = execFileSync('ldd', ['/usr/bin/git'], { encoding: 'utf8' }).matchAll(/(\/\S+) \(0x/g);
    for (const path of ['/usr/bin/git', ...[...libraries].map((match) => match[1]!)])
      await cli.ok('cp', path, `committer:${path}`);
    const identity = '-c user.name=agent -c user.email=agent@localhost -c safe.directory=/workspace';
    for (const name of ['one', 'two'])
      await cli.ok(
        'exec',
        'committer',
        `echo ${name} > ${name}; git add ${name}; git ${identity} commit -qm ${name}`,
      );
    await cli.ok('exec', 'committer', 'echo later > later');
    await cli.ok('pull', 'committer', '--branch', 'agent', '--repo', repository);
    expect(git(repository, 'log', '--format=%an %s', 'main..agent').split('\n')).toEqual([
      expect.stringContaining('From the sandbox committer'),
      'agent two',
      'agent one',
    ]);
    expect(git(repository, 'show', 'agent:later')).toBe('later');
    expect(git(repository, 'status', '--porcelain')).toBe('');
  });
});

test('directories that are mounted are said everywhere to be no part of what is kept, forked, compared and merged', async () => {
  const [directory, sealed] = [await source('mounted'), await source('sealed')];
  await cli.ok('create', 'sharing', '--workspace', directory, '--mount', `${sealed}:/srv/sealed:ro`);
  expect(await cli.ok('exec', 'sharing', 'pwd; ls text /srv/sealed')).toContain('/workspace');
  const refused = await cli.run(['exec', 'sharing', 'echo x > /srv/sealed/text']);
  expect(refused.stderr).toMatch(/read-only/i);
  await cli.ok('create', 'both', '--mount', `${directory}:/data`, '--mount', `${sealed}:/more`);
  const said = (path: string) => `${path} is a directory of this machine that is mounted there`;
  for (const command of [
    ['snapshot', 'sharing', 'kept'],
    ['fork', 'sharing', 'alone'],
    ['diff', 'sharing:kept', 'sharing'],
    ['merge', 'sharing', 'alone'],
  ]) {
    const { stderr } = await cli.run(command);
    for (const path of ['/workspace', '/srv/sealed']) expect(stderr, command[0]).toContain(said(path));
    const name = { snapshot: 'again', fork: 'other' }[command[0]!];
    const again = name === undefined ? command : [...command.slice(0, 2), name];
    expect(await cli.json(...again), command[0]).toMatchObject({ left_out: ['/workspace', '/srv/sealed'] });
  }
  // What it is merged into has its own, and says so too.
  expect((await cli.run(['merge', 'alone', 'both'])).stderr).toContain(said('/data'));
  const info = await cli.ok('info', 'sharing');
  expect(info).toContain(
    `${directory} at /workspace (shared; not part of snapshots, forks, diffs and merges)`,
  );
  expect(info).toContain(`${sealed} at /srv/sealed (shared, read-only; not part`);
  expect(await cli.ok('ls')).toMatch(/sharing .* \/workspace, \/srv\/sealed \(ro\)/);
  expect((await cli.run(['snapshot', 'alone'])).stderr).toBe('');
  const ran = await cli.ok('run', '--mount', `${sealed}:/in:ro`, '--', 'cat /in/text');
  expect(ran).toBe((await readFile(join(sealed, 'text'), 'utf8')).trim());
});

test('a mount that cannot be is refused with what to do, and makes no sandbox', async () => {
  const directory = await source('refused');
  const before = await cli.ok('ls', '-q');
  for (const [mount, why] of [
    [directory, 'HOST:GUEST'],
    [`${directory}:/etc`, 'belongs to the sandbox'],
    [`${directory}:/proc/x`, 'belongs to the sandbox'],
    [`${directory}/no:/data`, 'does not exist'],
    [`${directory}/text:/data`, 'not a directory'],
    [`${cli.home}:/data`, 'overlap'],
  ] as const)
    expect((await cli.run(['create', '--mount', mount])).stderr, mount).toContain(why);
  const twice = ['--mount', `${directory}:/a`, '--mount', `${directory}:/a/b`];
  expect((await cli.run(['create', ...twice])).stderr).toContain('one inside another');
  expect(await cli.ok('ls', '-q')).toBe(before);
});
