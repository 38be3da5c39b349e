import fc from 'fast-check';
import { expect, test } from 'vitest';
import { AnswerReader } from '../src/models/answer-reader.ts';
import { anthropic } from '../src/models/dialects/anthropic.ts';
import { type Found, JsonScanner, type Wanted } from '../src/models/json-scanner.ts';

/** Cuts bytes at the given places. */
const cut = (bytes: Buffer, places: readonly number[]): Buffer[] => {
  const at = [...new Set(places.map((place) => place % (bytes.length + 1)))].toSorted(
    (one, other) => one - other,
  );
  return [0, ...at].map((from, index) => bytes.subarray(from, at[index] ?? bytes.length));
};

const wanted: Wanted = {
  in: {
    a: { take: 'value', name: 'a' },
    b: { in: { c: { take: 'value', name: 'b.c' }, '*': { in: { d: { take: 'value', name: 'b.*.d' } } } } },
  },
};

/** The same by parsing the whole. */
const expected = (document: unknown): [string, unknown][] => {
  const found: [string, unknown][] = [];
  const isObject = (value: unknown): value is Record<string, unknown> =>
    typeof value === 'object' && value !== null && !Array.isArray(value);
  if (!isObject(document)) return found;
  for (const [key, value] of Object.entries(document)) {
    if (key === 'a') found.push(['a', value]);
    if (key !== 'b') continue;
    if (isObject(value) && Object.hasOwn(value, 'c')) found.push(['b.c', value.c]);
    if (Array.isArray(value))
      for (const element of value)
        if (isObject(element) && Object.hasOwn(element, 'd')) found.push(['b.*.d', element.d]);
  }
  return found;
};

test('a scanner finds in any document, however it is cut, what parsing the whole finds', () => {
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      fc.string({ unit: 'grapheme' }),
      fc.constantFrom('"', '\\', '\\"', '\n', 'a":1,"'),
      fc.double({ noNaN: true, noDefaultInfinity: true }),
      fc.boolean(),
      fc.constant(null),
      fc.array(tie('value'), { maxLength: 4 }),
      fc.dictionary(fc.oneof(fc.constantFrom('a', 'b', 'c', 'd', 'a"'), fc.string()), tie('value'), {
        maxKeys: 5,
      }),
    ),
  }));
  fc.assert(
    fc.property(value, fc.boolean(), fc.array(fc.nat(), { maxLength: 12 }), (document, isSpaced, places) => {
      const bytes = Buffer.from(JSON.stringify(document, null, isSpaced ? 2 : 0));
      const found: Found[] = [];
      const scanner = new JsonScanner(wanted, (one) => found.push(one));
      for (const chunk of cut(bytes, places)) scanner.feed(chunk);
      scanner.end();
      expect(scanner.fault).toBeUndefined();
      expect(scanner.isWhole).toBe(true);
      expect(found.map((one) => [one.name, JSON.parse(one.text)])).toEqual(
        expected(JSON.parse(bytes.toString())),
      );
      for (const one of found) expect(bytes.subarray(one.start, one.end).toString()).toBe(one.text);
    }),
    { numRuns: 500 },
  );
});

test('a reader counts the same in a stream however it is cut and whatever ends its lines', () => {
  const events = [
    {
      type: 'message_start',
      message: { model: 'm', usage: { input_tokens: 5, cache_read_input_tokens: 7 } },
    },
    { type: 'content_block_delta', delta: { type: 'text_delta', text: 'é "usage": {"output_tokens": 9}' } },
    { type: 'message_delta', usage: { output_tokens: 11 } },
  ];
  fc.assert(
    fc.property(fc.constantFrom('\n', '\r\n', '\r'), fc.array(fc.nat(), { maxLength: 20 }), (end, places) => {
      const text = events
        .map((one) => `: note${end}event: x${end}data: ${JSON.stringify(one)}${end}${end}`)
        .join('');
      const reader = new AnswerReader(anthropic, 'text/event-stream; charset=utf-8');
      for (const chunk of cut(Buffer.from(text), places)) reader.feed(chunk);
      expect(reader.usage).toEqual({ input: 5, cacheRead: 7, output: 11 });
      expect(reader.isFinal).toBe(true);
      expect(reader.model).toBe('m');
      expect(reader.textBytes).toBe(Buffer.byteLength('é \\"usage\\": {\\"output_tokens\\": 9}'));
    }),
    { numRuns: 300 },
  );
});

test.each([
  '{"a":1}x',
  '{"a" 1}',
  '{a:1}',
  "{'a':1}",
  '{"a":1,}',
  '[1,]',
  '{"a":1]',
  '}',
  '/* */{}',
  '{"a":1}{"a":2}',
])('a scanner does not take %s for a document', (text) => {
  const scanner = new JsonScanner(wanted, () => {});
  scanner.feed(Buffer.from(text));
  scanner.end();
  expect(scanner.isWhole).toBe(false);
});
