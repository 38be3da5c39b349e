import { createHmac } from 'node:crypto';
import {
  type Forge,
  type ForgeAnswer,
  ForgeCalls,
  GiteaForge,
  GithubForge,
  GitlabForge,
} from '@coppice/forge';
import { CoppiceError } from '@coppice/protocol';
import { describeForge, type ForgeBench } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { placesOf } from '../../packages/daemon/src/forge/remote-forges.ts';
import { commitFile } from '../../packages/daemon/test/commit-file.ts';
import { giteaDialect } from './stand-in/gitea-dialect.ts';
import { githubDialect } from './stand-in/github-dialect.ts';
import { GithubJudge } from './stand-in/github-judge.ts';
import { gitlabDialect } from './stand-in/gitlab-dialect.ts';
import { type Dialect, StandIn, token } from './stand-in/stand-in.ts';

const forges = {
  github: (calls: ForgeCalls): Forge => new GithubForge(calls, 'acme/app'),
  gitlab: (calls: ForgeCalls): Forge => new GitlabForge(calls),
  gitea: (calls: ForgeCalls): Forge => new GiteaForge(calls),
};

/** Without a gateway between, and with pauses that take no time. */
const forgeAt = (standIn: StandIn, dialect: Dialect, slept: number[] = [], login = token): Forge =>
  forges[dialect.kind](
    new ForgeCalls({
      title: `${dialect.kind} acme/app`,
      now: () => 1_000_000,
      sleep: async (ms) => slept.push(ms),
      http: async ({ method, path, query = {}, body, signal }): Promise<ForgeAnswer> => {
        const url = `${standIn.url}${dialect.api}${path}?${new URLSearchParams(query)}`;
        try {
          const answer = await fetch(url, {
            method,
            headers: { ...dialect.login(login), 'content-type': 'application/json' },
            ...(body === undefined ? {} : { body: JSON.stringify(body) }),
            ...(signal === undefined ? {} : { signal }),
          });
          const text = await answer.text();
          return {
            status: answer.status,
            headers: Object.fromEntries(answer.headers),
            body: text === '' ? null : JSON.parse(text),
          };
        } catch (error) {
          throw new CoppiceError('unavailable', 'no answer came', { cause: error });
        }
      },
    }),
  );

const hooks: Record<Dialect['kind'], (secret: string, body: string) => Record<string, string>> = {
  github: (secret, body) => ({
    'x-github-event': 'pull_request',
    'x-hub-signature-256': `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`,
  }),
  gitlab: (secret) => ({ 'x-gitlab-event': 'Merge Request Hook', 'x-gitlab-token': secret }),
  gitea: (secret, body) => ({
    'x-gitea-event': 'pull_request',
    'x-gitea-signature': createHmac('sha256', secret).update(body).digest('hex'),
  }),
};

const judge = new GithubJudge();

for (const dialect of [githubDialect, gitlabDialect, giteaDialect]) {
  describeForge(`${dialect.kind}, as a stand-in speaks it`, async (): Promise<ForgeBench> => {
    const standIn = await StandIn.start(dialect);
    return {
      forge: forgeAt(standIn, dialect),
      issueId: '1',
      push: (branch, file, content) => commitFile(standIn.repository, branch, file, content),
      review: async (pull, state) => {
        await standIn.forge.review(pull, 'ann', { state, body: '' });
      },
      webhook: (secret, body) => ({ headers: hooks[dialect.kind](secret, body), body: Buffer.from(body) }),
      close: async () => {
        if (dialect.kind === 'github')
          expect([...new Set(standIn.seen.flatMap((each) => judge.complaints(each)))]).toEqual([]);
        await standIn.close();
      },
    };
  });

  describe(`a repository of ${dialect.kind}`, () => {
    let standIn: StandIn;
    beforeAll(async () => {
      standIn = await StandIn.start(dialect);
    });
    afterAll(() => standIn?.close());

    const branchWithCommit = async (forge: Forge, name: string): Promise<string> => {
      const base = await forge.branch('main');
      await forge.createBranch(name, base!.sha);
      return commitFile(standIn.repository, name, `${name}.txt`, 'x\n');
    };
    const isPull = ({ method, path }: { method: string; path: string }) =>
      method === 'POST' && /^\/(pulls|merge_requests)$/.test(path);

    test('gets one pull request where the answer to its opening was lost, and is never asked twice by itself', async () => {
      const forge = forgeAt(standIn, dialect);
      await branchWithCommit(forge, 'lost');
      standIn.trouble.push({ when: isPull, answer: undefined });
      const pull = { head: 'lost', base: 'main', title: 'Lost', body: '' };
      await expect(forge.createPull(pull)).rejects.toMatchObject({ code: 'unavailable' });
      expect(await forge.findPull('lost')).toMatchObject({ title: 'Lost' });
      await expect(forge.createPull(pull)).rejects.toMatchObject({ code: 'name_taken' });
      expect((await standIn.forge.pulls('all')).filter(({ head }) => head === 'lost')).toHaveLength(1);
    });

    test('answers the same to a merge that is asked for again', async () => {
      const forge = forgeAt(standIn, dialect);
      const expectedHead = await branchWithCommit(forge, 'again');
      const { number } = await forge.createPull({ head: 'again', base: 'main', title: 'Again', body: '' });
      standIn.trouble.push({ when: ({ path }) => path.endsWith('/merge'), answer: undefined });
      const merge = () => forge.mergePull(number, { expectedHead, method: 'squash' });
      await expect(merge()).rejects.toMatchObject({ code: 'unavailable' });
      expect(await merge()).toEqual({ sha: (await standIn.repository.branch('main'))!.sha });
    });

    test('is waited for as long as it asks, and no longer than a minute', async () => {
      const slept: number[] = [];
      const forge = forgeAt(standIn, dialect, slept);
      const all = () => true;
      standIn.trouble.push({ when: all, answer: { status: 429, headers: { 'retry-after': '7' }, body: {} } });
      standIn.trouble.push({
        when: all,
        answer: {
          status: 403,
          headers: { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '1003' },
          body: {},
        },
      });
      expect(await forge.defaultBranch()).toBe('main');
      expect(slept).toEqual([7000, 3000]);
      standIn.trouble.push({
        when: all,
        answer: { status: 429, headers: { 'retry-after': '600' }, body: {} },
      });
      await expect(forge.defaultBranch()).rejects.toMatchObject({
        code: 'rate_limited',
        details: { retry_after_s: 600 },
      });
      expect(slept).toHaveLength(2);
    });

    test('that fails for a moment is read again, and not written to again', async () => {
      const forge = forgeAt(standIn, dialect);
      const broken = { status: 502, body: { message: 'Bad Gateway' } };
      for (let n = 0; n < 2; n += 1) standIn.trouble.push({ when: () => true, answer: broken });
      expect(await forge.defaultBranch()).toBe('main');
      standIn.trouble.push({ when: ({ method }) => method === 'POST', answer: broken });
      await expect(forge.comment('1', 'once')).rejects.toMatchObject({ code: 'unavailable' });
      expect(standIn.trouble).toEqual([]);
      expect(await standIn.forge.comments('1')).toEqual([]);
    });

    test('tells a wrong token from a missing permission and from an answer that makes no sense', async () => {
      const stranger = forgeAt(standIn, dialect, [], 'wrong');
      await expect(stranger.defaultBranch()).rejects.toMatchObject({ code: 'unauthenticated' });
      const forge = forgeAt(standIn, dialect);
      standIn.forbidden.push('POST /');
      await expect(forge.comment('1', 'x')).rejects.toMatchObject({
        code: 'forbidden',
        hint: expect.stringContaining('coppice forge doctor'),
      });
      standIn.forbidden.length = 0;
      standIn.trouble.push({ when: () => true, answer: { status: 200, body: { default_branch: 7 } } });
      await expect(forge.defaultBranch()).rejects.toMatchObject({ code: 'corrupt' });
      standIn.trouble.push({ when: () => true, answer: { status: 301, body: { message: 'Moved' } } });
      await expect(forge.defaultBranch()).rejects.toMatchObject({ code: 'wrong_state' });
    });
  });
}

test('every operation that is asked of GitHub is in its own description, and each was judged', () => {
  expect([...judge.used].sort()).toEqual(GithubJudge.operations.sort());
  const bad = { method: 'POST', path: '/pulls', query: new URLSearchParams(), body: { head: 7 } };
  expect(judge.complaints({ asked: bad, answered: { status: 201, body: {} } }).length).toBeGreaterThan(2);
});

test.each([
  ['github', null, 'https://api.github.com/repos/acme/app', 'https://github.com/acme/app.git'],
  [
    'github',
    'https://ghe.example.org',
    'https://ghe.example.org/api/v3/repos/acme/app',
    'https://ghe.example.org/acme/app.git',
  ],
  [
    'github',
    'https://ghe.example.org/api/v3',
    'https://ghe.example.org/api/v3/repos/acme/app',
    'https://ghe.example.org/acme/app.git',
  ],
  ['gitlab', null, 'https://gitlab.com/api/v4/projects/acme%2Fapp', 'https://gitlab.com/acme/app.git'],
  [
    'gitea',
    'https://git.example.org/sub',
    'https://git.example.org/sub/api/v1/repos/acme/app',
    'https://git.example.org/sub/acme/app.git',
  ],
] as const)('a repository of %s at %s is found where the forge has it', (kind, url, api, git) => {
  expect(placesOf({ id: 'x', kind, url, remote: 'acme/app' })).toEqual({ api, git });
});
