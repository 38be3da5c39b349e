import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ForgeRelay } from '../src/forges/forge-relay.ts';
import type { Secrets } from '../src/secrets/secrets.ts';

const token = 'token-0123456789-abcdef';

describe('the token of a repository elsewhere', () => {
  let forge: Server;
  let door: Server;
  let relay: ForgeRelay;
  let doorUrl: string;
  const asked: IncomingMessage[] = [];
  const values = new Map<string, string>();

  beforeAll(async () => {
    forge = createServer((request, response) => {
      asked.push(request);
      request.resume();
      if (request.url?.includes('/moved')) {
        response.writeHead(302, { location: 'http://127.0.0.1:1/elsewhere' }).end();
        return;
      }
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ echo: request.headers.authorization, path: request.url }));
    });
    forge.listen(0, '127.0.0.1');
    await once(forge, 'listening');
    const place = `http://127.0.0.1:${(forge.address() as AddressInfo).port}`;
    const secrets = {
      set: (name: string, value: string) => void values.set(name, value),
      value: (name: string) => values.get(name)!,
    } as unknown as Secrets;
    relay = new ForgeRelay(secrets, []);
    relay.set('one', { kind: 'github', api: `${place}/repos/acme/app`, git: `${place}/acme/app.git`, token });
    door = createServer((request, response) => {
      relay.git('one', request, response, request.url ?? '').catch((error: Error) => {
        response.writeHead(403).end(error.message);
      });
    });
    door.listen(0, '127.0.0.1');
    await once(door, 'listening');
    doorUrl = `http://127.0.0.1:${(door.address() as AddressInfo).port}`;
  });
  afterAll(() => {
    forge?.close();
    door?.close();
  });

  test('goes with a call to its repository, and does not come back in an answer', async () => {
    const answer = await relay.call('one', { method: 'GET', path: '/pulls', query: { state: 'open' } });
    expect(asked.at(-1)).toMatchObject({
      url: '/repos/acme/app/pulls?state=open',
      headers: { authorization: `Bearer ${token}` },
    });
    expect(JSON.stringify(answer)).not.toContain(token);
    expect(answer).toMatchObject({ status: 200, body: { path: '/repos/acme/app/pulls?state=open' } });
  });

  test.each([
    '/../other',
    '/..%2f..%2fuser',
    '/%2e%2e/%2e%2e/user',
    '/./../x',
    '/pulls/../../../user',
    '\\..\\x',
    'x',
    '@127.0.0.1:1/',
    '.evil.invalid/',
    '/pulls?admin=1',
    '/pulls#x',
    '/a\r\nhost: x',
  ])('does not go where the path %j leads', async (path) => {
    const before = asked.length;
    await expect(relay.call('one', { method: 'GET', path })).rejects.toMatchObject({ code: 'forbidden' });
    expect(asked).toHaveLength(before);
  });

  test('does not follow a redirect', async () => {
    expect(await relay.call('one', { method: 'GET', path: '/moved' })).toMatchObject({ status: 302 });
  });

  const line = (text: string) => (text.length + 4).toString(16).padStart(4, '0') + text;
  const push = (ref: string) => `${line(`${'0'.repeat(40)} ${'1'.repeat(40)} ${ref}\0report-status`)}0000`;

  test('pushes to the one branch that the push is for, and git asks for nothing else with it', async () => {
    const send = (path: string, body: string | undefined, branch?: string) =>
      fetch(`${doorUrl}${path}`, {
        method: body === undefined ? 'GET' : 'POST',
        headers: branch === undefined ? {} : { 'x-coppice-branch': branch },
        ...(body === undefined ? {} : { body }),
      });
    const before = asked.length;
    for (const [path, body, branch] of [
      ['/git-receive-pack', push('refs/heads/mine'), undefined],
      ['/info/refs?service=git-receive-pack', undefined, undefined],
      ['/git-upload-archive', '0000', 'mine'],
      ['/../other.git/info/refs?service=git-upload-pack', undefined, 'mine'],
    ] as const)
      expect((await send(path, body, branch)).status, path).toBe(403);
    for (const ref of ['refs/heads/main', 'refs/heads/mine2', 'refs/tags/mine'])
      expect(await (await send('/git-receive-pack', push(ref), 'mine')).text()).toContain('not this branch');
    expect(asked).toHaveLength(before);
    expect((await send('/git-receive-pack', push('refs/heads/mine'), 'mine')).status).toBe(200);
    expect(asked.at(-1)!.url).toBe('/acme/app.git/git-receive-pack');
    expect((await send('/info/refs?service=git-upload-pack', undefined)).status).toBe(200);
  });
});
