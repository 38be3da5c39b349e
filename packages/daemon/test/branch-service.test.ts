import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { BareRepository, BuiltinForge, type Forge, Git } from '@coppice/forge';
import { CoppiceError, startBranchSchema } from '@coppice/protocol';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { BranchService } from '../src/branches/branch-service.ts';
import { openDatabase } from '../src/db/open-database.ts';
import { State } from '../src/db/state.ts';
import { Journal } from '../src/journal/journal.ts';
import { KeyedLock } from '../src/journal/keyed-lock.ts';
import { commitFile } from './commit-file.ts';

/** A forge whose answers get lost: the first calls of these are done, or not, and then fail. */
function unreliable(forge: Forge, lost: Record<string, ('done' | 'not-done')[]>, calls: string[]): Forge {
  return new Proxy(forge, {
    get: (target, key: string) => {
      const method = target[key as keyof Forge] as (...args: unknown[]) => Promise<unknown>;
      return async (...args: unknown[]) => {
        calls.push(key);
        const fate = lost[key]?.shift();
        if (fate !== 'not-done') {
          const answer = await method.apply(target, args);
          if (fate === undefined) return answer;
        }
        throw new CoppiceError('unavailable', 'the answer was lost');
      };
    },
  });
}

describe('a branch workflow', () => {
  let directory: string;
  let state: State;
  let repository: BareRepository;
  let forge: BuiltinForge;

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'coppice-branches-'));
    state = new State(openDatabase(join(directory, 'coppice.db'), join(directory, 'backup')));
    repository = await BareRepository.create(
      new Git({ maxPackBytes: 1 << 24 }),
      join(directory, 'r.git'),
      'main',
    );
    const record = {
      kind: 'builtin',
      defaultBranch: 'main',
      url: null,
      remote: null,
      createdAtMs: 0,
    } as const;
    state.forge.insertRepository({ id: 'one', name: 'one', ...record });
    await commitFile(repository, 'main', 'README.md', 'hello\n');
    const locks = new KeyedLock();
    forge = new BuiltinForge({
      id: 'one',
      name: 'one',
      defaultBranch: 'main',
      url: 'http://forge.invalid/one',
      repository,
      records: state.forge,
      exclusive: (work) => locks.exclusive('one', work),
    });
  });
  afterAll(async () => {
    state.close();
    await rm(directory, { recursive: true });
  });

  const serviceOn = (there: Forge): BranchService =>
    new BranchService({
      state,
      journal: new Journal(state, { now: Date.now }),
      now: Date.now,
      forge: {
        forgeOf: () => there,
        repositoryOf: () => repository,
        bringIn: async () => {},
        advance: (_ref, branch, to, expected) => repository.moveBranch(branch, to, expected),
      },
      sandbox: {
        make: async () => 'sb',
        checkOut: async () => {},
        commitAll: async (_id, { branch }) =>
          commitFile(repository, branch, `${branch.replaceAll('/', '-')}.txt`, 'x\n'),
        bringOut: async (_id, _repository, { branch }) => (await repository.branch(branch))!.sha,
      },
      destroySandbox: async () => {},
      startRun: async () => ({ id: 'run' }),
      pauseMs: 1,
    });
  const ask = (ticket: string) => startBranchSchema.parse({ repository: 'one', ticket, title: 'Try again' });

  test.each([
    ['was done', 'done'],
    ['was not done', 'not-done'],
  ] as const)(
    'makes branch and pull request once when the answer to what %s is lost',
    async (_what, fate) => {
      const calls: string[] = [];
      const flaky = unreliable(forge, { createBranch: [fate], createPull: [fate] }, calls);
      const ticket = `T-${fate}`;
      const started = await serviceOn(flaky).start(ask(ticket));
      expect(started.state).toBe('started');
      await serviceOn(flaky).finish({ repository: 'one', branch: ticket });
      const made = (await forge.pulls('all')).filter(({ head }) => head === started.branch_name);
      expect(made).toHaveLength(1);
      const expected = fate === 'done' ? 1 : 2;
      expect(calls.filter((call) => call === 'createBranch')).toHaveLength(expected);
      expect(calls.filter((call) => call === 'createPull')).toHaveLength(expected);
    },
  );

  test('gives up after three tries, keeps the branch, and goes on when it is asked again', async () => {
    const calls: string[] = [];
    const flaky = unreliable(forge, { createPull: ['not-done', 'not-done', 'not-done'] }, calls);
    const service = serviceOn(flaky);
    const { branch_name } = await service.start(ask('T-3'));
    const query = { repository: 'one', branch: 'T-3' };
    await expect(service.finish(query)).rejects.toMatchObject({ code: 'unavailable' });
    expect(calls.filter((call) => call === 'createPull')).toHaveLength(3);
    const kept = await service.status(query);
    expect(kept).toMatchObject({ state: 'needs_review', branch_name, error: 'the answer was lost' });
    expect(kept.ahead_by).toBeGreaterThan(0);
    expect(await service.finish(query)).toMatchObject({ state: 'in_review', error: null });
  });

  test('never sends a merge again by itself', async () => {
    const calls: string[] = [];
    const flaky = unreliable(forge, { mergePull: ['done'] }, calls);
    const service = serviceOn(flaky);
    await service.start(ask('T-4'));
    const query = { repository: 'one', branch: 'T-4' };
    await service.finish(query);
    const merge = { ...query, method: 'squash', keep_sandbox: false } as const;
    await expect(service.merge(merge)).rejects.toMatchObject({ code: 'unavailable' });
    expect(calls.filter((call) => call === 'mergePull')).toHaveLength(1);
    const before = await repository.branch('main');
    expect(await service.merge(merge)).toMatchObject({ success: true, merge_sha: before!.sha });
    expect(await repository.branch('main')).toEqual(before);
  });
});
