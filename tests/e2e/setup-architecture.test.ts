import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');
const foldersIn = (path: string): string[] =>
  readdirSync(join(root, path), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name)
    .toSorted();

/** What the first column of a table names: `packages/sdk`, or `images/`, `network/`. */
const firstColumn = (text: string): string[] =>
  text
    .split('\n')
    .filter((line) => line.startsWith('| `'))
    .flatMap((line) =>
      [...line.split('|')[1]!.matchAll(/`([^`]+)`/g)].map(([, name]) => name!.replace(/\/$/, '')),
    );

describe('docs/architecture.md', () => {
  const [parts = '', rooms = ''] = readFileSync(join(root, 'docs/architecture.md'), 'utf8').split(
    'In the daemon each folder is a room',
  );

  test('names every package, and no other', () => {
    const named = firstColumn(parts).filter((name) => name.startsWith('packages/'));
    expect(named.map((name) => name.slice('packages/'.length)).toSorted()).toEqual(foldersIn('packages'));
  });

  test('names every room of the daemon, and no other', () => {
    expect(firstColumn(rooms.split('\n## ')[0]!).toSorted()).toEqual(foldersIn('packages/daemon/src'));
  });
});

test('native/README.md names every folder of C, and no other', () => {
  const text = readFileSync(join(root, 'native/README.md'), 'utf8');
  const named = [...text.matchAll(/\(`(\w+)\/`\)|^\| `(\w+)\/` \|/gm)].map(
    ([, program, folder]) => program ?? folder!,
  );
  expect(named.toSorted()).toEqual(foldersIn('native').filter((name) => name !== 'build'));
});
