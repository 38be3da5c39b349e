import type { Forge } from '@coppice/forge';
import { CoppiceError } from '@coppice/protocol';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

/** A forge with one repository whose default branch has a commit, and a way to add commits as a push would. */
export interface ForgeBench {
  readonly forge: Forge;
  /** An issue titled `Dark mode` that is there from the beginning. */
  readonly issueId: string;
  /** A new commit with this file on top of a branch, as pushed by git; says its sha. */
  readonly push: (branch: string, file: string, content: string) => Promise<string>;
  /** Somebody reviews. */
  readonly review?: (pull: number, state: 'approved' | 'changes_requested') => Promise<void>;
  /** A webhook as this forge sends it, signed with the secret. */
  readonly webhook: (
    secret: string,
    body: string,
  ) => { readonly headers: Record<string, string>; readonly body: Uint8Array };
  readonly close: () => Promise<void>;
}

export interface ForgeTraits {
  /** What a partner that stands in for the forge cannot do, and why that is not asked of the adapter here. */
  readonly lacks?: readonly ('conflicts' | 'compare' | 'checks' | 'merge-base')[];
}

const codeOf = async (work: Promise<unknown>): Promise<string> => {
  try {
    await work;
  } catch (error) {
    if (error instanceof CoppiceError) return error.code;
    throw error;
  }
  return 'done';
};

/** What every forge does, whoever runs it. */
export function describeForge(
  name: string,
  open: () => Promise<ForgeBench>,
  { lacks = [] }: ForgeTraits = {},
): void {
  describe(`the forge ${name}`, () => {
    let bench: ForgeBench;
    let main: string;

    beforeAll(async () => {
      bench = await open();
      main = await bench.forge.defaultBranch();
    });
    afterAll(async () => {
      await bench?.close();
    });

    const startBranch = async (branch: string, file: string, content = `${branch}\n`): Promise<string> => {
      const base = await bench.forge.branch(main);
      await bench.forge.createBranch(branch, base!.sha);
      return bench.push(branch, file, content);
    };
    const openPull = async (
      branch: string,
      file = `${branch.replaceAll('/', '-')}.txt`,
      content?: string,
    ) => {
      const sha = await startBranch(branch, file, content);
      const pull = await bench.forge.createPull({
        head: branch,
        base: main,
        title: branch,
        body: 'For the test.',
      });
      return { sha, pull };
    };

    test('gives an issue and takes a comment on it', async () => {
      const issue = await bench.forge.issue(bench.issueId);
      expect(issue).toMatchObject({ id: bench.issueId, title: 'Dark mode', state: 'open' });
      const comment = await bench.forge.comment(bench.issueId, 'Work has begun.');
      expect(comment).toMatchObject({ body: 'Work has begun.' });
      expect(await codeOf(bench.forge.issue('999999'))).toBe('not_found');
    });

    test('makes a branch once', async () => {
      const base = await bench.forge.branch(main);
      expect(base?.sha).toMatch(/^[0-9a-f]{40}$/);
      expect(await bench.forge.branch('feature/once')).toBeUndefined();
      await bench.forge.createBranch('feature/once', base!.sha);
      expect(await bench.forge.branch('feature/once')).toEqual({ name: 'feature/once', sha: base!.sha });
      expect(await codeOf(bench.forge.createBranch('feature/once', base!.sha))).toBe('name_taken');
      await bench.forge.deleteBranch('feature/once');
      expect(await bench.forge.branch('feature/once')).toBeUndefined();
    });

    test('opens a pull request once, finds it by its branch, and changes it', async () => {
      const { sha, pull } = await openPull('feature/pull');
      expect(pull).toMatchObject({
        title: 'feature/pull',
        body: 'For the test.',
        state: 'open',
        head: 'feature/pull',
        head_sha: sha,
        base: main,
        draft: false,
      });
      const again = { head: 'feature/pull', base: main, title: 'again', body: '' };
      expect(await codeOf(bench.forge.createPull(again))).toBe('name_taken');
      expect((await bench.forge.findPull('feature/pull'))?.number).toBe(pull.number);
      expect(await bench.forge.findPull('feature/none')).toBeUndefined();
      const changed = await bench.forge.updatePull(pull.number, { title: 'Another title' });
      expect(changed).toMatchObject({ title: 'Another title', body: 'For the test.' });
      expect(await bench.forge.closePull(pull.number)).toMatchObject({ state: 'closed' });
      expect(await bench.forge.findPull('feature/pull')).toBeUndefined();
      expect(await codeOf(bench.forge.pull(999_999))).toBe('not_found');
    });

    test('merges what was looked at, and nothing that came later', async () => {
      const { sha, pull } = await openPull('feature/merge');
      const wrong = bench.forge.mergePull(pull.number, { expectedHead: '1'.repeat(40), method: 'squash' });
      await expect(wrong).rejects.toMatchObject({ code: 'conflict', details: { reason: 'head_moved' } });
      expect(await bench.forge.pull(pull.number)).toMatchObject({ state: 'open' });
      const merged = await bench.forge.mergePull(pull.number, { expectedHead: sha, method: 'squash' });
      expect(merged.sha).toMatch(/^[0-9a-f]{40}$/);
      expect(await bench.forge.pull(pull.number)).toMatchObject({ state: 'merged' });
      if (!lacks.includes('merge-base')) expect((await bench.forge.branch(main))?.sha).toBe(merged.sha);
    });

    test('never merges a conflict', async ({ skip }) => {
      if (lacks.includes('conflicts')) skip('the partner that stands in for this forge knows no conflicts');
      const { sha } = await openPull('feature/ours', 'same.txt', 'ours\n');
      const theirs = await openPull('feature/theirs', 'same.txt', 'theirs\n');
      const ours = await bench.forge.findPull('feature/ours');
      await bench.forge.mergePull(ours!.number, { expectedHead: sha, method: 'squash' });
      const before = await bench.forge.branch(main);
      expect(await bench.forge.pull(theirs.pull.number)).toMatchObject({ mergeable: false });
      for (const method of ['squash', 'merge', 'rebase'] as const)
        await expect(
          bench.forge.mergePull(theirs.pull.number, { expectedHead: theirs.sha, method }),
        ).rejects.toMatchObject({ code: 'conflict', details: { reason: 'merge_conflict' } });
      expect(await bench.forge.branch(main)).toEqual(before);
    });

    test('counts how far two branches are apart', async ({ skip }) => {
      if (lacks.includes('compare')) skip('the partner that stands in for this forge compares nothing');
      await startBranch('feature/apart', 'apart.txt');
      await bench.push('feature/apart', 'apart-2.txt', 'more\n');
      expect(await bench.forge.compare(main, 'feature/apart')).toEqual({ ahead: 2, behind: 0 });
    });

    test('keeps checks of a commit, and says that there are none where there are none', async ({ skip }) => {
      const sha = await startBranch('feature/checks', 'checks.txt');
      expect(await bench.forge.checks(sha)).toEqual([]);
      if (lacks.includes('checks')) skip('the partner that stands in for this forge takes no checks');
      const check = { name: 'tests', description: '12 of 12', url: null } as const;
      await bench.forge.reportCheck(sha, { ...check, state: 'pending' });
      expect(await bench.forge.checks(sha)).toMatchObject([{ name: 'tests', state: 'pending' }]);
      await bench.forge.reportCheck(sha, { ...check, state: 'failure' });
      expect(await bench.forge.checks(sha)).toMatchObject([{ name: 'tests', state: 'failure' }]);
    });

    test('gives the newest review of each reviewer', async ({ skip }) => {
      const { pull } = await openPull('feature/review');
      expect(await bench.forge.reviews(pull.number)).toEqual([]);
      if (bench.review === undefined) skip('nobody else can review in this partner');
      await bench.review!(pull.number, 'changes_requested');
      await bench.review!(pull.number, 'approved');
      expect(await bench.forge.reviews(pull.number)).toMatchObject([{ state: 'approved' }]);
    });

    test('believes a webhook only with the right signature', () => {
      const good = bench.webhook('s3cret', '{"action":"opened","number":7}');
      expect(bench.forge.readWebhook(good, 's3cret')).toMatchObject({ type: 'pull_request' });
      for (const [request, secret] of [
        [good, 'other'],
        [good, ''],
        [{ ...good, headers: {} }, 's3cret'],
      ] as const)
        expect(() => bench.forge.readWebhook(request, secret)).toThrow(
          expect.objectContaining({ code: 'unauthenticated' }),
        );
    });

    test('refuses names that are none', async () => {
      for (const name of [
        '../x',
        'a..b',
        '-x',
        'x.lock',
        'a/../../b',
        'refs//x',
        'a b',
        'x\n',
        'HEAD',
        'a@{1}',
      ])
        expect(await codeOf(bench.forge.branch(name)), name).toBe('invalid_argument');
    });
  });
}
