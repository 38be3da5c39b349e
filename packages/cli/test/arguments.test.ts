import { describe, expect, test } from 'vitest';
import { parseDurationMs, parseDurationSeconds } from '../src/args/duration.ts';
import { collectEnv, collectLabels } from '../src/args/key-value.ts';
import { parsePort, parseWhole } from '../src/args/number.ts';
import { parsePlace } from '../src/args/place.ts';
import { commandLine } from '../src/args/process-options.ts';
import { createBody } from '../src/args/sandbox-options.ts';
import { parseSignal } from '../src/args/signal.ts';
import { parseMegabytes } from '../src/args/size.ts';

const refused = expect.objectContaining({ code: 'invalid_argument' });

describe('sizes', () => {
  test.each([
    ['512', 512],
    ['512m', 512],
    ['2g', 2048],
    ['1.5G', 1536],
    ['1GiB', 1024],
    ['1t', 1_048_576],
  ])('%s is %i MiB', (text, megabytes) => expect(parseMegabytes(text)).toBe(megabytes));
  test.each(['', 'much', '-1', '0', '5k', '1e3', '1 2'])('%j is refused', (text) =>
    expect(() => parseMegabytes(text)).toThrow(refused),
  );
});

describe('durations', () => {
  test.each([
    ['30', 30_000],
    ['250ms', 250],
    ['1.5m', 90_000],
    ['2h', 7_200_000],
    ['1d', 86_400_000],
  ])('%s is %i ms', (text, ms) => expect(parseDurationMs(text)).toBe(ms));
  test('a short one is at least a second where seconds are counted', () => {
    expect(parseDurationSeconds('10ms')).toBe(1);
  });
  test.each(['', '0', 'soon', '-5s', '5w'])('%j is refused', (text) =>
    expect(() => parseDurationMs(text)).toThrow(refused),
  );
});

describe('pairs', () => {
  test('a value may hold an equals sign or be empty, and a bare name is taken from here', () => {
    const collect = collectEnv({ HERE: 'yes' });
    expect(collect('A=b=c', collect('B=', collect('HERE')))).toEqual({ A: 'b=c', B: '', HERE: 'yes' });
  });
  test('a bare name that is not set here is refused', () => {
    expect(() => collectEnv({})('NOT_HERE')).toThrow(refused);
    expect(() => collectEnv({})('=x')).toThrow(refused);
  });
  test('a label may stand alone', () => {
    expect(collectLabels('team=a', collectLabels('ci'))).toEqual({ ci: '', team: 'a' });
  });
});

describe('places of a copy', () => {
  test.each([
    ['dev:/a/b', { kind: 'sandbox', sandbox: 'dev', path: '/a/b' }],
    ['dev:', { kind: 'sandbox', sandbox: 'dev', path: '.' }],
    ['dev:a:b', { kind: 'sandbox', sandbox: 'dev', path: 'a:b' }],
    ['./a:b', { kind: 'host', path: './a:b' }],
    ['/x/y:z', { kind: 'host', path: '/x/y:z' }],
    ['plain', { kind: 'host', path: 'plain' }],
    ['-', { kind: 'pipe' }],
  ])('%s', (text, place) => expect(parsePlace(text)).toEqual(place));
});

test('signals have numbers and names', () => {
  expect([parseSignal('9'), parseSignal('kill'), parseSignal('SIGTERM')]).toEqual([9, 9, 15]);
  expect(() => parseSignal('nonsense')).toThrow(refused);
  expect(() => parseSignal('65')).toThrow(refused);
});

test('numbers are whole, and ports are in range', () => {
  expect(parseWhole('12')).toBe(12);
  expect(() => parseWhole('1.5')).toThrow(refused);
  expect(parsePort('65535')).toBe(65535);
  expect(() => parsePort('0')).toThrow(refused);
  expect(() => parsePort('65536')).toThrow(refused);
});

test('the words of a command are passed on as they are', () => {
  expect(commandLine(['--', 'ls', '-l'])).toEqual(['ls', '-l']);
  expect(commandLine(['git', 'log', '--', 'file'])).toEqual(['git', 'log', '--', 'file']);
  expect(commandLine(['make && make test'])).toBe('make && make test');
  expect(() => commandLine(['--user', 'x'])).toThrow(refused);
  expect(() => commandLine(['--'])).toThrow(refused);
});

test('only what was said on the command line goes into the request', () => {
  expect(JSON.parse(JSON.stringify(createBody(undefined, {})))).toEqual({});
  expect(
    JSON.parse(JSON.stringify(createBody('a', { memory: 64, internet: true, allowPort: [443] }))),
  ).toEqual({
    name: 'a',
    memory_mb: 64,
    network: { allow_internet: true, allowed_ports: [443] },
  });
});
