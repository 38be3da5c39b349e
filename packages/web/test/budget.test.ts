import { readdirSync, readFileSync, statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { bundleWeb } from '../../../scripts/bundle-web.ts';

const kB = 1000;

describe('the built page', () => {
  let directory: string;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'coppice-web-'));
    await bundleWeb(directory);
  });
  afterAll(() => rm(directory, { recursive: true, force: true }));

  const size = (name: string): number => statSync(join(directory, `${name}.gz`)).size;
  const text = (name: string): string => readFileSync(join(directory, name), 'utf8');
  /** With what it imports at once, and what those import. */
  const closure = (name: string, found = new Set<string>()): Set<string> => {
    if (found.has(name)) return found;
    found.add(name);
    for (const [, imported] of text(name).matchAll(/(?:from|import)\s*"\.\/([\w-]+\.js)"/g))
      closure(imported!, found);
    return found;
  };
  const sum = (names: Iterable<string>): number => [...names].reduce((total, name) => total + size(name), 0);
  const scripts = (): string[] => readdirSync(directory).filter((name) => name.endsWith('.js'));
  const holding = (mark: string): string => {
    const found = scripts().filter((name) => text(name).includes(mark));
    expect(found, mark).toHaveLength(1);
    return found[0]!;
  };

  test('is small: 40 kB until something is seen, 100 kB for a terminal, 200 kB in all', () => {
    const main = scripts().find((name) => name.startsWith('main-'))!;
    const style = readdirSync(directory).find((name) => /^main-.*\.css$/.test(name))!;
    // The overview is what a page shows first.
    const overview = closure(holding('No sandbox yet'));
    const first = sum(new Set([...closure(main), ...overview, style, 'index.html']));
    const terminal = closure(holding('xterm-accessibility'));
    const alone = sum([...terminal].filter((name) => !closure(main).has(name)));
    const all = sum([...scripts(), style, 'index.html']);
    console.log(`first ${first} B, terminal ${alone} B, all ${all} B, compressed`);
    expect(first).toBeLessThanOrEqual(40 * kB);
    expect(alone).toBeGreaterThan(50 * kB);
    expect(alone).toBeLessThanOrEqual(100 * kB);
    expect(all).toBeLessThanOrEqual(200 * kB);
  });

  test('loads nothing from elsewhere and turns no text into markup', () => {
    const page = text('index.html');
    expect(page).not.toMatch(/https?:|<style|<script(?! type="module" src="\/assets\/)/);
    for (const name of scripts().filter((script) => !text(script).includes('xterm-accessibility')))
      expect(text(name), name).not.toMatch(/\bdocument\.write\b|\beval\(|new Function\(|insertAdjacentHTML/);
    const own = readdirSync(join(import.meta.dirname, '../src'), { recursive: true, encoding: 'utf8' });
    for (const file of own.filter((name) => /\.tsx?$/.test(name)))
      expect(readFileSync(join(import.meta.dirname, '../src', file), 'utf8'), file).not.toMatch(
        /innerHTML|dangerously/i,
      );
  });
});
