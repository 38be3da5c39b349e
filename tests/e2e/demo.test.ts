import { afterAll, beforeAll, expect, test } from 'vitest';
import { CliHome } from './cli-home.ts';

let cli: CliHome;
beforeAll(async () => {
  cli = await CliHome.start();
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
