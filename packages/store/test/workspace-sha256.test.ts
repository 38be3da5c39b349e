import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { sha256 } from '../src/workspaces/sha256.ts';

test('a line of the log has the SHA-256 that others compute, at every length around a block and in any script', () => {
  const texts = ['', 'ünïcödé ☃ 🌲', '\u0000\ud800'];
  for (let length = 1; length <= 200; length += 1) texts.push('x'.repeat(length));
  texts.push('long '.repeat(20_000));
  for (const text of texts) expect(sha256(text)).toBe(createHash('sha256').update(text).digest('hex'));
});
