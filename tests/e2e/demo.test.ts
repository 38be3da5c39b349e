import { afterAll, beforeAll, expect, test } from 'vitest';
import { CliHome } from './cli-home.ts';

let cli: CliHome;
beforeAll(async () => {
  cli = await CliHome.start(undefined, ['git', 'git-upload-pack', 'tail', 'sort']);
});
afterAll(() => cli?.remove(), 300_000);

test('the demo shows every step and leaves nothing behind', async () => {
  const shown = await cli.ok('demo');
  for (const step of ['create', 'snapshot', 'break', 'restore', 'fork', 'compare', 'merge', 'clean up']) {
    expect(shown).toContain(`✓ ${step}`);
  }
  expect(shown).toContain('A /workspace/sort');
  expect(shown).toContain('1 2 3 4 5');
  expect(await cli.json('ls')).toEqual([]);
  expect(await cli.json('snapshots')).toEqual([]);
});

test('the demo of projects tries, promotes and rolls back without a key, and leaves no sandbox behind', async () => {
  const shown = await cli.ok('demo', 'projects');
  expect(shown).toContain('sorted: 8 of 8 cases, better');
  expect(shown).toContain('STRONGLY_RECOMMEND (ROI: 500%)');
  expect(shown).toContain('it fails more often than before');
  expect(await cli.json('ls')).toEqual([]);
  expect(await cli.json('snapshots')).toEqual([]);
  expect(await cli.json('project', 'ls')).toEqual([]);
});

test('the demo of agents tells, rewinds, forks and merges one without a key, and leaves nothing behind', async () => {
  const before = await cli.json('agent', 'ls');
  const shown = await cli.ok('demo', 'agents');
  for (const step of [
    'it goes wrong',
    'tell it',
    'rewind it',
    'fork it three ways',
    'open the pull request',
    'merge it',
    'clean up',
  ])
    expect(shown).toContain(`✓ ${step}`);
  expect(shown).toContain('test.sh is back: test "$(printf');
  expect(shown).toContain('add while you read: passes (the quickest: merged)');
  expect(shown).toContain('take the largest number: fails');
  expect(shown).toContain('add the first and the last: fails');
  expect(shown).toContain('[total-1] The total is wrong');
  expect(await cli.json('ls')).toEqual([]);
  expect(await cli.json('snapshots')).toEqual([]);
  expect(await cli.json('agent', 'ls')).toEqual(before);
  expect(await cli.json('forge', 'ls')).toEqual([]);
  expect(await cli.json('token', 'ls')).toMatchObject([{ name: 'home' }]);
});
