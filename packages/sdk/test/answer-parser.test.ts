import fc from 'fast-check';
import { expect, test } from 'vitest';
import { AnswerParser, type KeptAnswer } from '../src/node/answer-parser.ts';

const parse = (parts: readonly Buffer[]): KeptAnswer | undefined => {
  const parser = new AnswerParser();
  let answer: KeptAnswer | undefined;
  for (const part of parts) {
    expect(answer).toBeUndefined();
    answer = parser.push(part);
  }
  return answer ?? parser.end();
};

const cut = (whole: Buffer, at: readonly number[]): Buffer[] => {
  const places = [...new Set(at.map((place) => place % whole.length))].sort((a, b) => a - b);
  return [0, ...places].map((start, index) => whole.subarray(start, places[index] ?? whole.length));
};

const chunked = (parts: readonly string[]): string =>
  `${parts
    .filter((part) => part !== '')
    .map((part) => `${Buffer.byteLength(part).toString(16)};name=value\r\n${part}\r\n`)
    .join('')}0\r\nTrailer: x\r\n\r\n`;

const heads = {
  length: (body: string) => `Content-Length: ${Buffer.byteLength(body)}\r\nKeep-Alive: timeout=72`,
  chunked: () => 'Transfer-Encoding: chunked\r\nKeep-Alive: timeout=72',
  end: () => 'Connection: close',
};

test('an answer is the same however it is cut and however it says its length', () => {
  fc.assert(
    fc.property(
      fc.array(fc.string({ unit: 'grapheme', maxLength: 20 }), { maxLength: 4 }),
      fc.constantFrom('length', 'chunked', 'end'),
      fc.boolean(),
      fc.array(fc.nat(), { maxLength: 12 }),
      (parts, kind, announced, places) => {
        const body = parts.join('');
        const head = `${announced ? 'HTTP/1.1 100 Continue\r\n\r\n' : ''}HTTP/1.1 201 Created\r\nServer: x\r\n${heads[kind](body)}\r\n\r\n`;
        const whole = Buffer.from(head + (kind === 'chunked' ? chunked(parts) : body));
        const pieces = cut(whole, places).filter((piece) => piece.length > 0);
        expect(parse(pieces)).toEqual({ status: 201, text: body, idleMs: kind === 'end' ? 0 : 71_000 });
      },
    ),
  );
});

test('an answer without a body ends with its head', () => {
  expect(parse([Buffer.from('HTTP/1.1 204 No Content\r\n\r\n')])).toMatchObject({ status: 204, text: '' });
});

test.each([
  [
    'a connection that says that it closes',
    'HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n',
  ],
  ['one of HTTP/1.0', 'HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n'],
  ['one that is given up at once', 'HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 0\r\n\r\n'],
])('is not used again: %s', (_, text) => {
  expect(parse([Buffer.from(text)])).toMatchObject({ idleMs: 0 });
});

test.each([
  ['another protocol', 'SSH-2.0-OpenSSH\r\n\r\n'],
  ['no status', 'HTTP/1.1 OK\r\n\r\n'],
  ['a change of protocols', 'HTTP/1.1 101 Switching Protocols\r\n\r\n'],
  ['a head without end', `HTTP/1.1 200 OK\r\n${'x: y\r\n'.repeat(20_000)}`],
  ['more than was announced', 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab'],
  ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 3\r\ncontent-length: 2\r\n\r\nab'],
  ['a list of lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nab'],
  ['a length on another line', 'HTTP/1.1 200 OK\r\nContent-Length:\r\n 2\r\n\r\nab'],
  ['a chunk without a size', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n'],
  ['a size without end', `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${'1'.repeat(70_000)}`],
])('is refused: %s', (_, text) => {
  expect(() => parse([Buffer.from(text)])).toThrow('no HTTP');
});

test.each([
  ['its body', 'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc'],
  ['a chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc'],
  ['its head', 'HTTP/1.1 200 OK\r\nContent-Le'],
])('is no answer when it ends in the middle of %s', (_, text) => {
  expect(parse([Buffer.from(text)])).toBeUndefined();
});
