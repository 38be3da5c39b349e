import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { pageSessionPath } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { Coppice } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type RawAnswer, type RawCall, rawCall } from './raw-call.ts';

const program = join(import.meta.dirname, '../../packages/cli/src/main.ts');

interface Page {
  readonly key: string;
  readonly cookie: string;
}

describe('the page', () => {
  let daemon: RunningDaemon;
  let sandbox: Sandbox;
  let own: { host: string; origin: string };

  const settle = (): void => {
    const host = new URL(daemon.url).host;
    own = { host, origin: `http://${host}` };
  };
  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    sandbox = await daemon.client.sandboxes.create();
    settle();
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  const post = (code: string, headers: Record<string, string> = own): Promise<RawAnswer> =>
    rawCall(daemon.url, {
      method: 'POST',
      path: pageSessionPath,
      headers: { ...headers, authorization: `Coppice-Code ${code}` },
    });
  const signIn = async (token = daemon.token): Promise<Page> => {
    using client = new Coppice({ url: daemon.url, token }, {});
    const answer = await post((await client.pageLink()).code);
    expect(answer.status).toBe(201);
    return { key: JSON.parse(answer.text).key, cookie: answer.headers['set-cookie']![0]!.split(';')[0]! };
  };
  const as = (page: Partial<Page>, call: Partial<RawCall> = {}): Promise<RawAnswer> =>
    rawCall(daemon.url, {
      method: 'GET',
      path: '/v1/sandboxes',
      ...call,
      headers: {
        ...own,
        ...(page.key === undefined ? {} : { authorization: `Bearer ${page.key}` }),
        ...(page.cookie === undefined ? {} : { cookie: page.cookie }),
        ...call.headers,
      },
    });

  test('is signed in by a link that works once and holds no token', async () => {
    const link = await daemon.client.pageLink();
    expect(link.path).toBe(`/#code=${link.code}`);
    expect(JSON.stringify(link)).not.toContain(daemon.token);
    const first = await post(link.code);
    expect(first.status).toBe(201);
    expect(first.text).not.toContain(daemon.token);
    const again = await post(link.code);
    expect([again.status, JSON.parse(again.text).code]).toEqual([401, 'unauthenticated']);
    expect(again.headers['set-cookie']).toBeUndefined();
    for (const invented of ['', 'x', daemon.token, 'x'.repeat(500)])
      expect((await post(invented)).status, invented).toBe(401);
  });

  test('is signed in for others however many links and sign-ins the token of a sandbox makes', async () => {
    const { code } = await daemon.client.pageLink();
    using inside = new Coppice({ url: daemon.url, token: sandbox.token! }, {});
    for (let n = 0; n < 120; n += 1) await inside.pageLink();
    expect((await post(code)).status).toBe(201);
    const mine = await signIn();
    const first = await signIn(sandbox.token!);
    for (let n = 0; n < 50; n += 1) await signIn(sandbox.token!);
    const who = { path: '/v1/whoami' };
    expect((await as(first, who)).status).toBe(401);
    expect((await as(await signIn(sandbox.token!), who)).status).toBe(200);
    expect((await as(mine, who)).status).toBe(200);
  });

  test('is served and signed in while strangers use up all the calls that they have', async () => {
    await using busy = await RunningDaemon.start({
      config: { limits: { requests_per_s: 1, burst: 20 } },
      image: false,
    });
    const { host } = new URL(busy.url);
    const ask = (call: Partial<RawCall>): Promise<RawAnswer> =>
      rawCall(busy.url, { method: 'GET', path: '/', ...call, headers: { host, ...call.headers } });
    const { code } = await busy.client.pageLink();
    const { code: unused } = await busy.client.pageLink();
    const guess = { path: '/v1/sandboxes', token: 'invented' };
    const flood = async (): Promise<void> => {
      for (let n = 0; n < 100; n += 1) if ((await ask(guess)).status === 429) return;
      throw new Error('strangers are not limited');
    };
    await flood();
    const index = await ask({});
    expect(index.status).toBe(200);
    const [, asset] = /(\/assets\/[\w.-]+\.js)/.exec(index.text)!;
    await flood();
    expect((await ask({ path: asset! })).status).toBe(200);
    expect((await ask({ path: '/sandboxes', headers: { accept: 'text/html' } })).status).toBe(200);
    const sign = (with_: string): Promise<RawAnswer> =>
      ask({
        method: 'POST',
        path: pageSessionPath,
        headers: { origin: `http://${host}`, authorization: `Coppice-Code ${with_}` },
      });
    for (let n = 0; n < 50; n += 1) expect((await sign('invented')).status).toBe(401);
    await flood();
    expect((await sign(code)).status).toBe(201);
    // Git asks without a password first, and asks for one when it is told to.
    await flood();
    expect((await ask({ path: '/git/some.git/info/refs?service=git-upload-pack' })).status).toBe(401);
    expect((await sign(unused)).status).toBe(201);
  });

  test('is opened by a link that no other account of the machine can read from the arguments of a program', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'coppice-browser-'));
    try {
      const seen = (name: string) => join(directory, name);
      const browser = `#!/bin/sh
echo "$@" > ${seen('arguments')}; stat -c %a "$1" > ${seen('mode')}; cp "$1" ${seen('copy')}; mv ${seen('copy')} ${seen('page')}
`;
      await writeFile(seen('xdg-open'), browser, { mode: 0o755 });
      const env = { ...process.env, PATH: `${directory}:${process.env.PATH}`, DISPLAY: ':1' };
      // On a terminal, as a person has it.
      const command = `'${process.execPath}' '${program}' open --home '${daemon.home}'`;
      await promisify(execFile)('script', ['--quiet', '--return', '--command', command, '/dev/null'], {
        env,
      });
      await eventually('the browser has read the link', () => existsSync(seen('page')));
      const code = /#code=([\w-]+)/.exec(await readFile(seen('page'), 'utf8'))?.[1];
      expect(code).toBeDefined();
      expect(await readFile(seen('arguments'), 'utf8')).not.toContain(code);
      expect((await readFile(seen('mode'), 'utf8')).trim()).toBe('600');
      expect((await post(code!)).status).toBe(201);
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });

  test('keeps its sign-in in a cookie of this host alone, which scripts cannot read and other sites do not send', async () => {
    const { code } = await daemon.client.pageLink();
    const set = (await post(code)).headers['set-cookie']!;
    expect(set).toHaveLength(1);
    const [value, ...attributes] = set[0]!.split('; ');
    expect(value).toMatch(new RegExp(`^coppice_${new URL(daemon.url).port}=[\\w-]{43}$`));
    expect(attributes.map((text) => text.replace(/=\d+$/, ''))).toEqual([
      'Path=/',
      'HttpOnly',
      'SameSite=Strict',
      'Max-Age',
    ]);
    const secure = await post((await daemon.client.pageLink()).code, {
      ...own,
      origin: `https://${own.host}`,
    });
    expect(secure.headers['set-cookie']![0]).toMatch(/; Secure$/);
  });

  test('shows a cookie and a key: one without the other, or that of another sign-in, opens nothing', async () => {
    const page = await signIn();
    const other = await signIn();
    expect((await as(page)).status).toBe(200);
    const name = page.cookie.split('=')[0];
    for (const wrong of [
      { cookie: page.cookie },
      { key: page.key },
      { key: page.key, cookie: other.cookie },
      { key: other.key, cookie: page.cookie },
      { key: page.key, cookie: `${name}=` },
      { key: page.key, cookie: `${page.cookie}; ${other.cookie}` },
      { key: page.key, cookie: `${name}=${page.key}` },
      { key: `${page.key}x`, cookie: page.cookie },
    ])
      expect((await as(wrong)).status, JSON.stringify(Object.keys(wrong))).toBe(401);
  });

  test('is not used by other pages: not by another port of this host, and not for changes without an Origin', async () => {
    const page = await signIn();
    for (const site of ['same-site', 'cross-site', 'none'])
      expect((await as(page, { headers: { 'sec-fetch-site': site } })).status, site).toBe(401);
    expect((await as(page, { headers: { 'sec-fetch-site': 'same-origin' } })).status).toBe(200);
    for (const origin of ['http://127.0.0.1:1', 'http://evil.example', 'null'])
      expect((await as(page, { headers: { origin } })).status, origin).toBe(403);
    const without = (call: Partial<RawCall>): Promise<RawAnswer> =>
      rawCall(daemon.url, {
        method: 'GET',
        path: '/v1/sandboxes',
        ...call,
        headers: { host: own.host, authorization: `Bearer ${page.key}`, cookie: page.cookie },
      });
    const exec = `/v1/sandboxes/${sandbox.id}/exec/stream`;
    expect((await without({})).status).toBe(200);
    expect((await without({ method: 'POST' })).status).toBe(401);
    expect((await without({ method: 'DELETE', path: `/v1/sandboxes/${sandbox.id}` })).status).toBe(401);
    expect((await without({ path: exec, upgrade: true })).status).toBe(401);
    expect((await as(page, { path: exec, upgrade: true })).status).toBe(101);
    expect((await sandbox.inspect()).state).toBe('running');
  });

  test('opens a WebSocket with the key among its protocols, which is never repeated', async () => {
    const page = await signIn();
    const open = (protocols: string, headers: Record<string, string>): Promise<RawAnswer> =>
      rawCall(daemon.url, {
        method: 'GET',
        path: `/v1/sandboxes/${sandbox.id}/exec/stream`,
        upgrade: true,
        headers: { ...own, ...headers, 'sec-websocket-protocol': protocols },
      });
    const offered = `coppice.v1, coppice.bearer.${page.key}`;
    const answer = await open(offered, { cookie: page.cookie });
    expect([answer.status, answer.headers['sec-websocket-protocol']]).toEqual([101, 'coppice.v1']);
    expect((await open(offered, {})).status).toBe(401);
    expect((await open('coppice.v1', { cookie: page.cookie })).status).toBe(401);
    expect((await open(`coppice.v1, coppice.bearer.${daemon.token}`, {})).status).toBe(101);
    const notSocket = await as({ cookie: page.cookie }, { headers: { 'sec-websocket-protocol': offered } });
    expect(notSocket.status).toBe(401);
  });

  test('is not signed in from elsewhere, and such an attempt does not use the link up', async () => {
    const { code } = await daemon.client.pageLink();
    expect((await post(code, { host: own.host, origin: 'http://evil.example' })).status).toBe(403);
    expect((await post(code, { host: own.host })).status).toBe(403);
    expect((await post(code, { ...own, 'sec-fetch-site': 'same-site' })).status).toBe(403);
    expect((await post(code, { host: 'evil.example', origin: 'http://evil.example' })).status).toBe(403);
    expect((await post(code)).status).toBe(201);
  });

  test('reaches what its token reaches, and no more', async () => {
    const other = await daemon.client.sandboxes.create();
    const page = await signIn(sandbox.token);
    expect((await as(page, { path: `/v1/sandboxes/${sandbox.id}` })).status).toBe(200);
    expect((await as(page, { path: `/v1/sandboxes/${other.id}` })).status).toBe(403);
    for (const path of ['/v1/sandboxes', '/v1/tokens', '/v1/lineage', '/metrics'])
      expect((await as(page, { path })).status, path).toBe(403);
    // Of events and costs it gets its own.
    for (const path of ['/v1/events', '/v1/costs']) {
      const answer = await as(page, { path });
      expect(answer.status, path).toBe(200);
      expect(answer.text, path).not.toContain(other.id);
    }
    expect((await as(page, { path: '/v1/events' })).text).toContain(sandbox.id);
    const caller = JSON.parse((await as(page, { path: '/v1/whoami' })).text);
    expect(caller.scope).toBe(`sandbox:${sandbox.id}`);
    expect(Date.parse(caller.signed_in_until)).toBeGreaterThan(Date.now());
    // It cannot outlive its end by signing in another one.
    expect((await as(page, { method: 'POST', path: '/v1/page/links' })).status).toBe(403);
    await other.destroy();
  });

  test('is signed out by itself, with its token, with its sandbox, and not by a restart', async () => {
    const { id, secret } = await daemon.client.tokens.create({ name: 'for-a-page' });
    const brief = await daemon.client.sandboxes.create();
    const pages = {
      leaving: await signIn(),
      revoked: await signIn(secret),
      gone: await signIn(brief.token),
      staying: await signIn(),
    };
    const ofBrief = { path: `/v1/sandboxes/${brief.id}` };
    expect((await as(pages.gone, ofBrief)).status).toBe(200);
    const out = await as(pages.leaving, { method: 'DELETE', path: pageSessionPath });
    expect(out.status).toBe(200);
    expect(out.headers['set-cookie']![0]).toMatch(/^coppice_\d+=; .*Max-Age=0/);
    const unused = await (async () => {
      using client = new Coppice({ url: daemon.url, token: secret }, {});
      return (await client.pageLink()).code;
    })();
    await daemon.client.tokens.revoke(id);
    await brief.destroy();
    expect((await post(unused)).status).toBe(401);
    expect((await as(pages.leaving)).status).toBe(401);
    expect((await as(pages.revoked)).status).toBe(401);
    expect((await as(pages.gone, ofBrief)).status).toBe(401);
    const port = new URL(daemon.url).port;
    await daemon.restart({ args: ['--port', port] });
    settle();
    expect((await as(pages.staying)).status).toBe(200);
    for (const page of [pages.leaving, pages.revoked, pages.gone]) expect((await as(page)).status).toBe(401);
    const asToken = await rawCall(daemon.url, {
      method: 'DELETE',
      path: pageSessionPath,
      token: daemon.token,
    });
    expect(asToken.status).toBe(400);
  });

  test('is served with a policy that lets nothing of others run, and its files are the built ones alone', async () => {
    const get = (path: string, headers: Record<string, string> = {}): Promise<RawAnswer> =>
      rawCall(daemon.url, { method: 'GET', path, headers: { ...own, accept: 'text/html', ...headers } });
    for (const path of ['/', '/lineage', '/sandboxes/some']) {
      const { status, headers, text } = await get(path);
      expect(status, path).toBe(200);
      const policy = headers['content-security-policy'] as string;
      expect(policy).toContain("default-src 'none'; script-src 'self'; ");
      expect(policy).toContain("frame-ancestors 'none'");
      expect(policy).toContain("require-trusted-types-for 'script'");
      expect(policy).not.toMatch(/script-src[^;]*(unsafe|\*|http)/);
      expect(headers['cache-control']).toBe('no-cache');
      expect(headers['x-content-type-options']).toBe('nosniff');
      expect(headers['set-cookie']).toBeUndefined();
      expect(text).not.toMatch(/<script(?![^>]* src="\/assets\/)/);
    }
    const script = /src="(\/assets\/[^"]+)"/.exec((await get('/')).text)![1]!;
    const asset = await get(script);
    expect(asset.headers['cache-control']).toBe('public, max-age=31536000, immutable');
    expect((await get(script, { 'accept-encoding': 'gzip' })).headers['content-encoding']).toBe('gzip');
    for (const path of [
      '/assets/index.html',
      '/assets/..%2fdaemon.mjs',
      '/assets/%2e%2e/daemon.mjs',
      `/assets/..%2f..%2f..${encodeURIComponent(`${daemon.home}/token`)}`,
      '/v1/nowhere',
    ])
      expect((await get(path)).status, path).toBe(404);
    expect((await rawCall(daemon.url, { method: 'GET', path: '/nowhere' })).status).toBe(404);
  });
});
