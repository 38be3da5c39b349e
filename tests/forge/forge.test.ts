import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { deflateSync } from 'node:zlib';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { GitClient, withToken } from './git-client.ts';

/** A line of git's protocol, with its length. */
const packet = (line: string): string => `${(line.length + 4).toString(16).padStart(4, '0')}${line}`;

const program = join(import.meta.dirname, '../../packages/cli/src/main.ts');

describe('the built-in forge', () => {
  let daemon: RunningDaemon;
  let git: GitClient;
  let first: string;
  let url: string;

  beforeAll(async () => {
    daemon = await RunningDaemon.start({ image: false, config: { limits: { forge_push_mb: 4 } } });
    git = await GitClient.make();
    first = await git.begin();
    const made = await daemon.client.repositories.create({ name: 'app' });
    url = made.clone_url;
    await git.ok('push', '--quiet', withToken(url, daemon.token), 'main');
  });
  afterAll(async () => {
    await git?.[Symbol.asyncDispose]();
    await daemon?.[Symbol.asyncDispose]();
  });

  /** The oldest of all: ids sort by the time they were made. */
  const directoryOfApp = async (): Promise<string> =>
    (await readdir(join(daemon.home, 'forge'))).filter((name) => name.endsWith('.git')).sort()[0]!;
  const app = () => daemon.client.repositories.at('app');
  const push = (...refs: readonly string[]) =>
    git.try('push', '--quiet', withToken(url, daemon.token), ...refs);

  test('serves clone, fetch and push to git itself', async () => {
    await using other = await GitClient.make();
    await other.ok('clone', '--quiet', withToken(url, daemon.token), 'app');
    expect(await other.ok('-C', 'app', 'rev-parse', 'HEAD')).toBe(first);
    await git.ok('switch', '--quiet', '-c', 'feature/served');
    const sha = await git.commit('served.txt', 'x\n'.repeat(10_000));
    expect(await push('feature/served')).toMatchObject({ code: 0 });
    await other.ok('-C', 'app', 'fetch', '--quiet');
    expect(await other.ok('-C', 'app', 'rev-parse', 'origin/feature/served')).toBe(sha);
    await git.ok('switch', '--quiet', 'main');
  });

  test('takes a pull request from issue to merge, with review and check', async () => {
    const issue = await app().createIssue({ title: 'Say more', type: 'bug' });
    await git.ok('switch', '--quiet', '-c', 'fix/1-say-more');
    const sha = await git.commit('more.txt', 'more\n');
    await push('fix/1-say-more');
    const pull = await app().createPull({
      head: 'fix/1-say-more',
      title: `[${issue.id}] Say more`,
      body: `Resolves #${issue.id}`,
    });
    expect(pull).toMatchObject({ state: 'open', head_sha: sha, mergeable: true });
    await app().review(pull.number, { state: 'approved' });
    expect(await app().reviews(pull.number)).toMatchObject([{ author: 'home', state: 'approved', sha }]);
    await app().reportCheck({ sha, name: 'tests', state: 'success' });
    const { merge_sha } = await app().mergePull(pull.number, { expected_head: sha });
    expect(await app().pull(pull.number)).toMatchObject({ state: 'merged', merge_sha });
    expect(await app().issue(issue.id)).toMatchObject({ state: 'closed' });
    await git.ok('switch', '--quiet', 'main');
    await git.ok('pull', '--quiet', withToken(url, daemon.token), 'main');
    expect(await git.ok('rev-parse', 'HEAD')).toBe(merge_sha);
    expect(await git.ok('show', 'HEAD:more.txt')).toBe('more');
    expect(await git.ok('log', '-1', '--format=%s')).toBe(`[${issue.id}] Say more (#${pull.number})`);
  });

  test('rebases commit by commit, with their authors, and merges with both parents', async () => {
    for (const [method, parents] of [
      ['rebase', 1],
      ['merge', 2],
    ] as const) {
      await git.ok('switch', '--quiet', '-c', `feature/${method}`, first);
      await git.commit(`${method}-1.txt`, 'one\n');
      const sha = await git.commit(`${method}-2.txt`, 'two\n');
      await push(`feature/${method}`);
      const pull = await app().createPull({ head: `feature/${method}`, title: method });
      const { merge_sha } = await app().mergePull(pull.number, { expected_head: sha, method });
      await git.ok('fetch', '--quiet', withToken(url, daemon.token), 'main');
      expect(await git.ok('rev-parse', 'FETCH_HEAD')).toBe(merge_sha);
      const line = await git.ok('rev-list', '--parents', '-1', 'FETCH_HEAD');
      expect(line.split(' ')).toHaveLength(parents + 1);
      expect(await git.ok('show', `FETCH_HEAD:${method}-1.txt`)).toBe('one');
    }
    expect(await git.ok('log', '--format=%an %s', '--grep=rebase-', 'FETCH_HEAD')).toBe(
      'Ann add rebase-2.txt\nAnn add rebase-1.txt',
    );
    await git.ok('switch', '--quiet', 'main');
  });

  test('says of itself by doctor that it works, and leaves nothing of the trial', async () => {
    const result = await app().doctor();
    expect(result.steps.filter(({ ok }) => !ok)).toEqual([]);
    expect(result.ok).toBe(true);
    expect(await git.ok('ls-remote', withToken(url, daemon.token), 'refs/heads/coppice-doctor/*')).toBe('');
    expect(await app().pulls()).toEqual([]);
  });

  test('lets nobody in without a token, and a token of a branch push that branch and nothing else', async () => {
    expect(await git.try('ls-remote', url)).toMatchObject({ code: 128 });
    expect(await git.try('ls-remote', withToken(url, 'cpt_wrong'))).toMatchObject({ code: 128 });
    const scope = `branch:${(await directoryOfApp()).replace(/\.git$/, '')}:agent/one`;
    const { secret } = await daemon.client.tokens.create({ name: 'agent', scope });
    const mine = withToken(url, secret);
    expect((await git.try('ls-remote', mine)).code).toBe(0);
    expect((await git.try('push', mine, 'main:agent/one')).code).toBe(0);
    for (const target of [
      'main:agent/two',
      `${first}:refs/heads/main`,
      `${first}:refs/tags/v1`,
      ':agent/one',
    ])
      expect((await git.try('push', mine, target)).code, target).not.toBe(0);
    const looking = await daemon.client.tokens.create({ name: 'looking', scope: 'admin', role: 'read' });
    expect((await git.try('ls-remote', withToken(url, looking.secret))).code).toBe(0);
    expect((await git.try('push', withToken(url, looking.secret), 'main:agent/three')).code).not.toBe(0);
    const answer = await fetch(`${daemon.url}/v1/forge/repositories`, {
      headers: { authorization: `Bearer ${secret}` },
    });
    expect(answer.status).toBe(403);
    await daemon.client.repositories.create({ name: 'other' });
    expect((await git.try('ls-remote', mine.replace('/app.git', '/other.git'))).code).not.toBe(0);
  });

  test('leaves places for others where one token holds as many fetches as it can and reads nothing', async () => {
    await daemon.client.repositories.create({ name: 'large' });
    await using sender = await GitClient.make();
    await sender.begin();
    const sha = await sender.commit('large.bin', randomBytes(3 * 1024 * 1024));
    // Under the limit of this daemon for one push, and in one fetch far more than a connection holds.
    const large = withToken(`${daemon.url}/git/large.git`, daemon.token);
    for (let n = 0; n < 6; n += 1) {
      if (n > 0) await sender.commit(`large-${n}.bin`, randomBytes(3 * 1024 * 1024));
      await sender.ok('push', '--quiet', large, 'main');
    }
    const { secret } = await daemon.client.tokens.create({ name: 'greedy', scope: 'admin', role: 'read' });
    const tip = await sender.ok('rev-parse', 'HEAD');
    const wants = `${packet(`want ${tip} ofs-delta\n`)}0000${packet('done\n')}`;
    const held = await Promise.all(
      Array.from({ length: 8 }, () =>
        fetch(`${daemon.url}/git/large.git/git-upload-pack`, {
          method: 'POST',
          headers: {
            authorization: `Bearer ${secret}`,
            'content-type': 'application/x-git-upload-pack-request',
          },
          body: wants,
        }),
      ),
    );
    expect(held.filter(({ status }) => status === 200)).toHaveLength(4);
    expect(held.filter(({ status }) => status === 429)).toHaveLength(4);
    await using other = await GitClient.make();
    await other.ok('clone', '--quiet', large, 'copy');
    expect(await other.ok('-C', 'copy', 'cat-file', '-t', sha)).toBe('commit');
    for (const { body } of held) await body?.cancel();
  });

  test('takes nothing more into a repository that is full', async () => {
    const full = await RunningDaemon.start({ image: false, config: { limits: { forge_repository_mb: 1 } } });
    try {
      const { clone_url } = await full.client.repositories.create({ name: 'full' });
      await using sender = await GitClient.make();
      await sender.begin();
      await sender.commit('large.bin', randomBytes(2 * 1024 * 1024));
      const target = withToken(clone_url, full.token);
      await sender.ok('push', '--quiet', target, 'main');
      await sender.commit('more.txt', 'more');
      const refused = await sender.try('push', target, 'main');
      expect(refused.code).not.toBe(0);
      expect(await sender.ok('ls-remote', target, 'refs/heads/main')).toContain(
        await sender.ok('rev-parse', 'HEAD~'),
      );
    } finally {
      await full[Symbol.asyncDispose]();
    }
  });

  test('gives git no more memory than it may have, whatever size a pack claims', async () => {
    // One commit of 3 GiB, of which nothing comes.
    const size: number[] = [];
    let left = BigInt(3 * 2 ** 30);
    size.push(Number(left & 15n) | (1 << 4) | 0x80);
    left >>= 4n;
    while (left > 127n) {
      size.push(Number(left & 127n) | 0x80);
      left >>= 7n;
    }
    size.push(Number(left));
    const pack = Buffer.concat([
      Buffer.from('PACK'),
      Buffer.from([0, 0, 0, 2, 0, 0, 0, 1]),
      Buffer.from(size),
      deflateSync(Buffer.alloc(100_000)),
    ]);
    const command = `${'0'.repeat(40)} ${'1'.repeat(40)} refs/heads/huge\0report-status side-band-64k`;
    const answer = await fetch(`${daemon.url}/git/app.git/git-receive-pack`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${daemon.token}`,
        'content-type': 'application/x-git-receive-pack-request',
      },
      body: Buffer.concat([Buffer.from(`${packet(command)}0000`), pack]),
    });
    expect(await answer.text()).toMatch(/out of memory/i);
  });

  test('takes no name that climbs, and no ref that is none', async () => {
    const auth = { authorization: `Bearer ${daemon.token}` };
    for (const path of [
      '/git/..%2fapp.git/info/refs?service=git-upload-pack',
      '/git/%2e%2e/info/refs?service=git-upload-pack',
      '/git/app.git/config',
      '/git/app.git/HEAD',
      '/git/app.git/objects/info/packs',
      '/git/app.git/info/refs',
      '/git/app.git/info/refs?service=git-upload-archive',
      '/git/app.git/info/refs?service=--upload-pack=/bin/sh',
    ]) {
      const { status } = await fetch(`${daemon.url}${path}`, { headers: auth });
      expect([400, 404, 422], path).toContain(status);
    }
    for (const ref of ['refs/coppice/x', 'refs/x', 'refs/heads/a..b', 'refs/heads/-x', 'HEAD', 'config'])
      expect((await push(`${first}:${ref}`)).code, ref).not.toBe(0);
    expect(await git.ok('ls-remote', withToken(url, daemon.token), 'refs/coppice/*')).toBe('');
    await expect(app().createPull({ head: '--upload-pack=x', title: 'x' })).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });

  test('bounds a push, and never overwrites what is there', async () => {
    await git.ok('switch', '--quiet', '-c', 'feature/large');
    await git.commit('large.bin', randomBytes(6 * 1024 * 1024));
    expect((await push('feature/large')).code).not.toBe(0);
    expect(await git.ok('ls-remote', withToken(url, daemon.token), 'feature/large')).toBe('');
    await git.ok('switch', '--quiet', 'main');
    await git.ok('switch', '--quiet', '-c', 'feature/force');
    await git.commit('force-1.txt', '1\n');
    await push('feature/force');
    await git.ok('reset', '--quiet', '--hard', 'HEAD~1');
    await git.commit('force-2.txt', '2\n');
    expect((await push('--force', 'feature/force')).code).not.toBe(0);
    await git.ok('switch', '--quiet', 'main');
  });

  test('refuses objects that would harm whoever checks them out', async () => {
    const blob = await git.ok('hash-object', '-w', '--literally', '-t', 'blob', 'README.md');
    for (const name of ['.git', '.GIT', '..']) {
      const entry = Buffer.concat([Buffer.from(`100644 ${name}\0`), Buffer.from(blob, 'hex')]);
      await git.commit('scratch.bin', entry);
      const tree = await git.ok('hash-object', '-w', '--literally', '-t', 'tree', 'scratch.bin');
      const sha = await git.ok('commit-tree', '-m', 'hostile', tree);
      const { code, stderr } = await push(`${sha}:refs/heads/hostile`);
      expect(code, name).not.toBe(0);
      expect(stderr, name).toMatch(/hasDot/);
    }
    await git.ok('reset', '--quiet', '--hard', first);
  });

  test('runs no hook and believes no settings of a repository', async () => {
    const place = join(daemon.home, 'forge', await directoryOfApp());
    expect(await readdir(place)).not.toContain('hooks');
    await mkdir(join(place, 'hooks'));
    for (const name of [
      'pre-receive',
      'update',
      'post-receive',
      'post-update',
      'reference-transaction',
      'packer',
    ]) {
      await writeFile(join(place, 'hooks', name), '#!/bin/sh\ntouch /repo/ran; exit 1\n');
      await chmod(join(place, 'hooks', name), 0o755);
    }
    const settings = '[core]\n\trepositoryformatversion = 0\n\tbare = true\n';
    const hostile =
      '\thooksPath = /repo/hooks\n\tfsmonitor = /repo/hooks/packer\n[uploadpack]\n\tpackObjectsHook = /repo/hooks/packer\n';
    await writeFile(join(place, 'config'), settings + hostile);
    try {
      await git.ok('switch', '--quiet', '-c', 'feature/hooks', 'main');
      await git.commit('hooks.txt', 'x\n');
      expect(await push('feature/hooks')).toMatchObject({ code: 0 });
      await using other = await GitClient.make();
      expect(await other.try('clone', '--quiet', withToken(url, daemon.token), 'app')).toMatchObject({
        code: 0,
      });
      expect(await readdir(place)).not.toContain('ran');
    } finally {
      await writeFile(join(place, 'config'), settings);
      await rm(join(place, 'hooks'), { recursive: true });
      await git.ok('switch', '--quiet', 'main');
    }
  });

  test('is used by its command from init to merge', async () => {
    const coppice = async (...args: readonly string[]) => {
      const env = { ...process.env, COPPICE_HOME: daemon.home };
      const { stdout } = await promisify(execFile)(process.execPath, [program, ...args], { env });
      return stdout.trim();
    };
    const other = await coppice('forge', 'init', 'site');
    expect(await coppice('forge', 'clone-url', 'site')).toBe(other);
    expect(await coppice('forge', 'ls')).toContain('site');
    const target = withToken(other, daemon.token);
    await git.ok('push', '--quiet', target, `${first}:refs/heads/main`);
    expect(await coppice('forge', 'issue', 'create', 'site', 'More text', '--type', 'docs')).toBe('#1');
    await git.ok('switch', '--quiet', '-c', 'docs/1-more-text', first);
    await git.commit('text.txt', 'text\n');
    await git.ok('push', '--quiet', target, 'docs/1-more-text');
    await coppice('forge', 'pr', 'create', 'site', 'docs/1-more-text', '--title', 'More text');
    await coppice('forge', 'pr', 'check', 'site', '2', 'lint', 'success');
    await coppice('forge', 'pr', 'review', 'site', '2', '--approve');
    const shown = JSON.parse(await coppice('forge', 'pr', 'show', 'site', '2', '--json'));
    expect(shown).toMatchObject({
      mergeable: true,
      checks: [{ name: 'lint', state: 'success' }],
      reviews: [{ state: 'approved' }],
    });
    expect(await coppice('forge', 'pr', 'merge', 'site', '2')).toMatch(/^merged as [0-9a-f]{40}$/);
    expect(await coppice('forge', 'pr', 'ls', 'site', '--all')).toContain('merged');
    expect(await coppice('forge', 'doctor', 'site')).not.toContain('FAILED');
    await coppice('forge', 'rm', 'site');
    expect(await git.try('ls-remote', target)).toMatchObject({ code: 128 });
    await git.ok('switch', '--quiet', 'main');
  });
});
