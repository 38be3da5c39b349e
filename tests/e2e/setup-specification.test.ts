import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const repository = join(import.meta.dirname, '..', '..');

test('every promise names a test that exists', () => {
  const rows = readFileSync(join(repository, 'SPECIFICATION.md'), 'utf8')
    .split('\n')
    .filter((line) => /^\| [A-Z]+\d+ \|/.test(line));
  expect(rows.length).toBeGreaterThan(0);
  const numbers = rows.map((row) => row.split('|')[1]?.trim());
  expect(numbers).toEqual([...new Set(numbers)]);
  const unheld = rows.filter((row) => {
    const held = row.split(' | ').at(-1) ?? '';
    const [, file, title] = /^`([^`]+)` › (.+) \|$/.exec(held) ?? [];
    if (file === undefined || title === undefined || !existsSync(join(repository, file))) return true;
    return !readFileSync(join(repository, file), 'utf8').includes(title);
  });
  expect(unheld).toEqual([]);
});
