import { describe, expect, test } from 'vitest';
import { PathGlob } from '../src/index.ts';

const matched = (glob: PathGlob, paths: readonly string[]) => paths.filter((path) => glob.matches(path));

describe('a pattern of paths', () => {
  test('reads as Go does: stars and question marks stop at a slash', () => {
    expect(matched(new PathGlob('*.txt'), ['a.txt', 'b/a.txt', '.txt', 'a.txtx'])).toEqual(['a.txt', '.txt']);
    const some = new PathGlob('d/[a-c]?.js');
    expect(matched(some, ['d/bx.js', 'd/dx.js', 'd/b/.js', 'd/b.js'])).toEqual(['d/bx.js']);
    expect(matched(new PathGlob('[^a]/\\*'), ['b/*', 'a/*', 'b/x'])).toEqual(['b/*']);
    expect(matched(new PathGlob('**/a'), ['x/a', 'x/y/a'])).toEqual(['x/a']);
    expect(matched(new PathGlob('a['), ['a['])).toEqual([]);
  });

  test('goes through directories with two stars, hidden ones too, and knows choices', () => {
    const deep = { deep: true, braces: true };
    const paths = ['a.pem', 'x/a.pem', '.x/.y/a.pem', 'xa.pem/b'];
    expect(matched(new PathGlob('**/*.pem', deep), paths)).toEqual(paths.slice(0, 3));
    expect(matched(new PathGlob('a/**', deep), ['a', 'a/.env', 'a/b/c', 'ab/c'])).toEqual([
      'a/.env',
      'a/b/c',
    ]);
    expect(matched(new PathGlob('a/**/b', deep), ['a/b', 'a/x/y/b', 'a/xb', 'ab'])).toEqual([
      'a/b',
      'a/x/y/b',
    ]);
    expect(matched(new PathGlob('*.{ts,js}', deep), ['a.ts', 'a.js', 'a.tsx'])).toEqual(['a.ts', 'a.js']);
    expect(matched(new PathGlob('[!a].{x', deep), ['b.{x', 'a.{x'])).toEqual(['b.{x']);
  });

  test('with many stars is matched in good time, whatever the path', () => {
    const stars = new PathGlob(`${'*a'.repeat(60)}b`);
    expect(stars.matches('a'.repeat(4000))).toBe(false);
    const deep = new PathGlob(`${'**/a/'.repeat(40)}b`, { deep: true });
    expect(deep.matches('a/'.repeat(2000))).toBe(false);
    expect(deep.matches(`${'a/'.repeat(2000)}b`)).toBe(true);
  });
});
