import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { homeKey } from '@coppice/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Home } from '../src/config/home.ts';

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-homes-'));
});
afterAll(() => rmSync(directory, { recursive: true }));

test('a home is made with all that is above it, for its owner alone, and found again', () => {
  const place = join(directory, 'a/b/home');
  expect(Home.open(place).directory).toBe(place);
  expect(statSync(place).mode & 0o777).toBe(0o700);
  expect(Home.open(place).key).toBe(homeKey(place));
});

test('a home that cannot be made is refused by its name', () => {
  writeFileSync(join(directory, 'file'), '');
  for (const place of ['/proc/coppice-home', join(directory, 'file'), join(directory, 'file/below')])
    expect(() => Home.open(place)).toThrow(`the home ${place}`);
});
