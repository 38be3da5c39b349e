import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { findEndpoint } from '../src/node/endpoint.ts';

let home: string;
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'coppice-sdk-'));
});
afterEach(() => rm(home, { recursive: true, force: true }));

const record = (value: unknown) => writeFile(join(home, 'daemon.json'), JSON.stringify(value));

test('the daemon of a home is found by its records, and its socket is preferred', async () => {
  await record({ pid: 1, url: 'http://127.0.0.1:7310', socket: '/run/there.sock' });
  await writeFile(join(home, 'token'), 'secret\n');
  const found = findEndpoint({}, { COPPICE_HOME: home });
  expect(found).toMatchObject({ socketPath: '/run/there.sock', token: 'secret' });
  expect(found.url.host).toBe('127.0.0.1:7310');
});

test('what is given wins over the environment, and the environment over the home', async () => {
  await record({ pid: 1, url: 'http://127.0.0.1:1', socket: null });
  await writeFile(join(home, 'token'), 'of-home');
  const env = { COPPICE_HOME: home, COPPICE_URL: 'http://127.0.0.1:2', COPPICE_TOKEN: 'of-env' };
  expect(findEndpoint({}, env)).toMatchObject({ url: new URL('http://127.0.0.1:2'), token: 'of-env' });
  expect(findEndpoint({ url: 'http://127.0.0.1:3', token: 'given' }, env)).toMatchObject({
    url: new URL('http://127.0.0.1:3'),
    token: 'given',
  });
  expect(findEndpoint({ home }, env)).toMatchObject({ url: new URL('http://127.0.0.1:1'), token: 'of-home' });
});

test('a home without a daemon says how to start one', () => {
  expect(() => findEndpoint({ home }, {})).toThrow(
    expect.objectContaining({ code: 'unavailable', hint: expect.stringContaining('coppice up') }),
  );
});

test('a record that cannot be read is named, and so is a URL that is none', async () => {
  await writeFile(join(home, 'daemon.json'), '{"pid": 1');
  expect(() => findEndpoint({ home }, {})).toThrow(expect.objectContaining({ code: 'corrupt' }));
  expect(() => findEndpoint({ url: 'ftp://there' }, {})).toThrow(
    expect.objectContaining({ code: 'invalid_argument' }),
  );
});

test('a token that would begin another header is refused', () => {
  expect(() => findEndpoint({ socket: '/s', token: 'a\r\nx: y' }, {})).toThrow(
    'characters that no token has',
  );
});
