import { type Route, routes } from '@coppice/protocol';
import { Coppice, type Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type RawAnswer, type RawCall, rawCall } from './raw-call.ts';

const table = Object.entries(routes as Record<string, Route>);
const guarded = table.filter(([, route]) => route.scope !== 'public');
/** What is about no sandbox in particular answers with what the token reaches: what-tokens-see.test.ts. */
const ofSandbox = table.filter(([, route]) => route.scope === 'sandbox' && route.path.includes(':sandbox'));
const ofAdmin = table.filter(([, route]) => route.scope === 'admin');

/** With every parameter filled in. */
const pathOf = (route: Route, sandbox: string): string =>
  route.path
    .replace(':sandbox', sandbox)
    .replaceAll(/:(job|terminal|port|pull)/g, '1')
    .replaceAll(':sha', '0'.repeat(40))
    .replaceAll(/:\w+/g, 'some');

describe('a token', () => {
  let daemon: RunningDaemon;
  let mine: Sandbox;
  let other: Sandbox;
  let token: string;
  let tokens = 0;

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    mine = await daemon.client.sandboxes.create({ name: 'mine' });
    token = mine.token!;
    other = await daemon.client.sandboxes.create({ name: 'other' });
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  const call = (route: Route, sandbox: string, token: string | undefined): Promise<RawAnswer> =>
    rawCall(daemon.url, {
      method: route.method,
      path: pathOf(route, sandbox),
      token,
      upgrade: route.answer === 'socket',
      ...(route.body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: '{}' }),
    });
  const codeOf = ({ text }: RawAnswer): string => JSON.parse(text).code;

  test('is needed for every route that is not public, and an invented one is refused', async () => {
    expect(guarded.length).toBeGreaterThan(50);
    for (const [name, route] of guarded) {
      for (const invented of [
        undefined,
        'wrong',
        'x'.repeat(256),
        `${daemon.token}x`,
        daemon.token.slice(1),
      ]) {
        const answer = await call(route, mine.id, invented);
        expect([answer.status, codeOf(answer)], name).toEqual([401, 'unauthenticated']);
        expect(answer.text, name).not.toContain(invented ?? 'Bearer');
      }
    }
  });

  test('of one sandbox is refused on every route of another, by id and by name, and learns not whether it exists', async () => {
    expect(ofSandbox.length).toBeGreaterThan(25);
    for (const [name, route] of ofSandbox) {
      const answers = await Promise.all(
        [other.id, 'other', 'nobody', `${mine.id}x`].map((ref) => call(route, ref, token)),
      );
      expect(new Set(answers.map(({ status }) => status)), name).toEqual(new Set([403]));
      expect(new Set(answers.map(({ text }) => text)).size, name).toBe(1);
    }
    expect((await other.inspect()).state).toBe('running');
  });

  test('of a sandbox is refused on every route for administrators, also on its own sandbox', async () => {
    expect(ofAdmin.length).toBeGreaterThan(20);
    for (const [name, route] of ofAdmin) expect((await call(route, mine.id, token)).status, name).toBe(403);
    expect((await mine.inspect()).state).toBe('running');
  });

  test('of a sandbox opens that sandbox, and not the snapshots of another', async () => {
    const { id: foreign, name } = await other.snapshot({ name: `private-${tokens++}` });
    await other.exec('echo secret > /root/secret');
    using client = new Coppice({ url: daemon.url, token }, {});
    const inside = client.sandboxes.at(mine.id);
    expect((await inside.exec('echo hello')).stdout).toBe('hello\n');
    for (const ref of [foreign, `other:${name}`, `${other.id}:${name}`, name])
      await expect(inside.restore(ref), ref).rejects.toMatchObject({ code: 'not_found' });
    expect((await mine.inspect()).state).toBe('running');
  });

  test('that is revoked, has expired, or whose sandbox is gone opens nothing', async () => {
    const refused = async (secret: string): Promise<boolean> =>
      (await rawCall(daemon.url, { method: 'GET', path: '/v1/sandboxes', token: secret })).status === 401;
    const make = (expires_in_s?: number) =>
      daemon.client.tokens.create({ name: `token-${tokens++}`, ...(expires_in_s ? { expires_in_s } : {}) });
    const revoked = await make();
    expect(await refused(revoked.secret)).toBe(false);
    await daemon.client.tokens.revoke(revoked.id);
    expect(await refused(revoked.secret)).toBe(true);

    const brief = await make(1);
    const lasting = await make(86_400);
    await eventually('the token expires', () => refused(brief.secret));
    expect(await refused(lasting.secret)).toBe(false);

    const gone = await daemon.client.sandboxes.create();
    await gone.destroy();
    expect((await call(routes.getSandbox, gone.id, gone.token)).status).toBe(401);
    await daemon.restart();
    for (const secret of [revoked.secret, brief.secret, gone.token!])
      expect(await refused(secret)).toBe(true);
    expect(await refused(lasting.secret)).toBe(false);
  });

  test('goes in the header only: not in the query, a cookie or a basic password', async () => {
    const secret = daemon.token;
    const basic = Buffer.from(`admin:${secret}`).toString('base64');
    const attempts: Pick<RawCall, 'path' | 'headers'>[] = [
      { path: `/v1/sandboxes?token=${secret}` },
      { path: `/v1/sandboxes?access_token=${secret}` },
      { path: '/v1/sandboxes', headers: { cookie: `token=${secret}` } },
      { path: '/v1/sandboxes', headers: { authorization: `Basic ${basic}` } },
    ];
    for (const attempt of attempts) {
      const answer = await rawCall(daemon.url, { method: 'GET', ...attempt });
      expect(answer.status).toBe(401);
      expect(answer.text).not.toContain(secret);
    }
  });
});
