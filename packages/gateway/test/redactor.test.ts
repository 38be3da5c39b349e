import { randomBytes, randomInt } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { maskSecrets } from '../src/recordings/mask-secrets.ts';
import { Redactor, redactText } from '../src/secrets/redactor.ts';
import { needlesOf } from '../src/secrets/secret-keeper.ts';

const value = 'tok/7c1e+52f09"ab3?';
const needles = needlesOf(value, { place: { kind: 'header', name: 'authorization', format: '{}' } });

/** Cut anywhere, as a network does. */
const throughPieces = async (bytes: Buffer): Promise<Buffer> => {
  const redactor = new Redactor(needles);
  const all = buffer(redactor);
  for (let at = 0; at < bytes.length; ) {
    const size = randomInt(1, 9);
    redactor.write(bytes.subarray(at, at + size));
    at += size;
  }
  redactor.end();
  return all;
};

const decoded = (text: string): string =>
  ['base64', 'base64url'].map((coding) => Buffer.from(text, coding as 'base64').toString('latin1')).join(' ');

test('a value in a longer text in base64 is covered, wherever it begins and however it is cut', async () => {
  for (let before = 0; before < 12; before += 1)
    for (const coding of ['base64', 'base64url'] as const) {
      const whole = Buffer.concat([randomBytes(before), Buffer.from(value), randomBytes(randomInt(0, 9))]);
      const covered = (await throughPieces(Buffer.from(whole.toString(coding)))).toString();
      expect(covered.length).toBe(whole.toString(coding).length);
      // What is left to guess from are the letters at both ends.
      expect(decoded(covered.replaceAll('*', 'A')), `${coding} after ${before}`).not.toContain(
        value.slice(2, -2),
      );
      expect(covered).toMatch(/\*{22,}/);
    }
});

test.each([
  ['a URL', encodeURIComponent(value)],
  ['a URL in small letters', encodeURIComponent(value).toLowerCase()],
  ['JSON', JSON.stringify({ value })],
  ['HTML', '<b>tok/7c1e+52f09&quot;ab3?</b>'],
  ['hex', Buffer.from(value).toString('hex')],
  [
    'base64 of JSON in a URL',
    encodeURIComponent(Buffer.from(JSON.stringify({ auth: value })).toString('base64')),
  ],
])('a value in %s is covered', async (_name, text) => {
  expect((await throughPieces(Buffer.from(text))).toString()).toMatch(/\*{8,}/);
  expect(redactText(text, needles)).toMatch(/\*{8,}/);
  expect(maskSecrets(Buffer.from(text), [value]).toString()).toMatch(/\*{8,}/);
});

test('what holds no value passes byte for byte', async () => {
  const noise = randomBytes(100_000);
  expect((await throughPieces(noise)).equals(noise)).toBe(true);
});
