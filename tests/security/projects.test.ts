import { type Route, referencesOf, routes } from '@coppice/protocol';
import { Coppice, type Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Agent } from '../mcp/agent.ts';
import { rawCall } from './raw-call.ts';

const table = Object.entries(routes as Record<string, Route>);

describe('a project', () => {
  let daemon: RunningDaemon;
  /** A sandbox named box in each of two projects, with a snapshot named kept. */
  let web: Sandbox;
  let shop: Sandbox;
  let shopSnapshot: string;
  /** With a token of the project web. */
  let ours: Coppice;
  let secret: string;

  const clientWith = (token: string) => new Coppice({ url: daemon.url, token });

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    const { sandboxes, tokens } = daemon.client;
    [web, shop] = await Promise.all([
      sandboxes.create({ name: 'box', project: 'web' }),
      sandboxes.create({ name: 'box', project: 'shop' }),
    ]);
    await web.snapshot({ name: 'kept' });
    shopSnapshot = (await shop.snapshot({ name: 'kept' })).id;
    ({ secret } = await tokens.create({ name: 'web', scope: 'project:web' }));
    ours = clientWith(secret);
  });
  afterAll(async () => {
    ours?.close();
    await daemon?.[Symbol.asyncDispose]();
  });

  test('has names of its own: an administrator finds one of another by project/name, a token by its name alone', async () => {
    const { sandboxes, snapshots } = daemon.client;
    expect((await sandboxes.get('web/box')).id).toBe(web.id);
    expect((await sandboxes.get('shop/box')).id).toBe(shop.id);
    await expect(sandboxes.get('box')).rejects.toMatchObject({ code: 'not_found' });
    expect((await ours.sandboxes.get('box')).id).toBe(web.id);
    expect((await ours.sandboxes.get('web/box')).id).toBe(web.id);
    expect((await snapshots.get('shop/box:kept')).id).toBe(shopSnapshot);
    expect((await ours.snapshots.get('box:kept')).sandbox_id).toBe(web.id);
    await expect(sandboxes.create({ name: 'box', project: 'web' })).rejects.toMatchObject({
      code: 'name_taken',
    });
  });

  test('is all that its token sees: sandboxes, snapshots, lineage and users of images', async () => {
    expect((await ours.sandboxes.list()).map(({ id }) => id)).toEqual([web.id]);
    expect((await ours.snapshots.list()).map(({ sandbox_id }) => sandbox_id)).toEqual([web.id]);
    const nodes = await ours.lineage();
    expect(nodes.filter(({ kind }) => kind === 'sandbox').map(({ id }) => id)).toEqual([web.id]);
    const users = (await ours.images.list()).flatMap(({ used_by }) => used_by);
    expect(users).toContain(web.id);
    expect(users).not.toContain(shop.id);
    expect((await daemon.client.sandboxes.list({ project: 'shop' })).map(({ id }) => id)).toEqual([shop.id]);
    expect((await daemon.client.sandboxes.list()).length).toBe(2);
  });

  test('keeps its token out of every other, by each field of each call that refers to something', async () => {
    const reachable = table.filter(([, { scope }]) => scope === 'sandbox' || scope === 'project');
    const foreign = {
      sandbox: [shop.id, 'shop/box'],
      snapshot: [shopSnapshot, 'shop/box:kept', `${shop.id}:kept`],
      'sandbox or snapshot': [shop.id, shopSnapshot, 'shop/box:kept'],
      project: ['shop'],
      'tried project': ['prj_00000000', 'shop'],
      run: [`run_${'0'.repeat(26)}`, 'shop-run'],
    } as const;
    const own = {
      sandbox: web.id,
      snapshot: `${web.id}:kept`,
      'sandbox or snapshot': web.id,
      project: 'web',
      'tried project': 'web',
      run: 'web-run',
    };
    let attempts = 0;
    for (const [name, route] of reachable) {
      const parts = { params: route.params, query: route.query, body: route.body } as const;
      const fields = Object.entries(parts).flatMap(([part, schema]) =>
        referencesOf(schema).map((field) => ({ part, ...field })),
      );
      for (const hostile of fields)
        for (const ref of foreign[hostile.kind]) {
          const given = (part: string): Record<string, unknown> =>
            Object.fromEntries(
              fields
                .filter((field) => field.part === part)
                .map((field) => {
                  const value = field === hostile ? ref : own[field.kind];
                  return [field.name, field.isList ? [value] : value];
                }),
            );
          const params = given('params');
          const path = route.path.replaceAll(/:(\w+)/g, (_, key) =>
            encodeURIComponent(String(params[key] ?? (key === 'sandbox' ? web.id : '4000'))),
          );
          const query = new URLSearchParams({
            path: '/etc/hostname',
            ...(given('query') as Record<string, string>),
          });
          const known = new Set(Object.keys((route.query as { shape?: object } | undefined)?.shape ?? {}));
          for (const key of [...query.keys()]) if (!known.has(key)) query.delete(key);
          const answer = await rawCall(daemon.url, {
            method: route.method,
            path: query.size === 0 ? path : `${path}?${query}`,
            token: secret,
            upgrade: route.answer === 'socket',
            headers: { 'content-type': 'application/json' },
            ...(route.body === undefined ? {} : { body: JSON.stringify(given('body')) }),
          });
          attempts += 1;
          // With a body that lacks something else, that may be said first; what was asked for never happens.
          expect([400, 403, 404], `${name} ${hostile.part}.${hostile.name}=${ref}: ${answer.text}`).toContain(
            answer.status,
          );
          expect(answer.text, name).not.toContain('"state"');
        }
    }
    expect(attempts).toBeGreaterThan(80);
    expect((await shop.inspect()).state).toBe('running');
    expect((await shop.snapshots()).map(({ name }) => name)).toEqual(['kept']);
  });

  test('answers alike for what is of another project and for what is not there', async () => {
    const absent = shop.id.replace(/.$/, (last) => (last === '0' ? '1' : '0'));
    const ask = async (ref: string) => {
      const answer = await rawCall(daemon.url, {
        method: 'GET',
        path: `/v1/sandboxes/${ref}`,
        token: secret,
      });
      return `${answer.status} ${answer.text.replaceAll(ref, 'REF')}`;
    };
    expect(await ask(shop.id)).toBe(await ask(absent));
  });

  test('gives its token nothing of the host: no directory, no port of it, no way to other sandboxes', async () => {
    const attempts = [
      () => ours.sandboxes.create({ mounts: [{ host_path: '/srv', guest_path: '/data' }] }),
      () => ours.sandboxes.create({ network: { allow_host_ports: [22] } }),
      () => ours.sandboxes.create({ network: { allow_inter_sandbox: true } }),
      () => ours.sandboxes.at('box').setNetwork({ allow_host_ports: [22] }),
      () => ours.sandboxes.at('box').ports.forward(80, { host_port: 18_080 }),
      () => ours.tokens.create({ name: 'more', scope: 'admin' }),
      () => ours.tokens.list(),
      () => ours.doctor(),
    ];
    for (const attempt of attempts) await expect(attempt()).rejects.toMatchObject({ code: 'forbidden' });
  });

  test('is where what its token makes belongs: a sandbox, its forks, and what grows from its snapshots', async () => {
    const made = await ours.sandboxes.create({ name: 'made' });
    const { sandboxes: forks } = await made.fork({ count: 2 });
    const grown = await ours.sandboxes.create({ from: 'box:kept' });
    for (const sandbox of [made, ...forks, grown])
      expect((await daemon.client.sandboxes.get(sandbox.id)).info?.project).toBe('web');
    await expect(ours.sandboxes.create({ project: 'shop' })).rejects.toMatchObject({ code: 'forbidden' });
    for (const sandbox of [...forks, grown, made]) await sandbox.destroy();
  });

  test('a sandbox’s own token finds it by name in its project', async () => {
    using inside = clientWith(web.token!);
    expect((await inside.sandboxes.get('box')).id).toBe(web.id);
  });

  test('holds for agents too: workspaces of another project do not exist for them', async () => {
    await using agent = await Agent.overHttp(daemon, { token: secret });
    const { workspaces } = await agent.ok<{ workspaces: { workspace_id: string }[] }>('workspace_list', {});
    expect(workspaces.map(({ workspace_id }) => workspace_id)).toEqual([web.id]);
    for (const workspace_id of [shop.id, 'shop/box'])
      expect(await agent.refused('workspace_info', { workspace_id })).toMatch(/^(not_found|forbidden): /);
    const { workspace_id } = await agent.ok<{ workspace_id: string }>('workspace_create', { name: 'agents' });
    expect((await daemon.client.sandboxes.get('web/agents')).id).toBe(workspace_id);
    await agent.ok('workspace_destroy', { workspace_id });
  });
});

describe('a project with runs', () => {
  let daemon: RunningDaemon;
  let ours: Coppice;
  let webRun: string;
  let shopRun: string;
  /** It has the name of our project, and is none of ours. */
  let tried: string;

  const clientWith = (token: string) => new Coppice({ url: daemon.url, token });

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    const { runs, tokens, projects } = daemon.client;
    const start = async (project: string): Promise<string> =>
      (await runs.start({ name: `${project}-run`, project, task: 'wait', command: 'sleep 600' })).id;
    [webRun, shopRun] = [await start('web'), await start('shop')];
    tried = (await projects.create({ name: 'web' })).id;
    ours = clientWith((await tokens.create({ name: 'web', scope: 'project:web' })).secret);
  });
  afterAll(async () => {
    ours?.close();
    await daemon?.[Symbol.asyncDispose]();
  });

  test('lets its token see and steer its own runs, and no others', async () => {
    expect((await ours.runs.list()).map(({ id }) => id)).toEqual([webRun]);
    expect(await ours.runs.get(webRun)).toMatchObject({ name: 'web-run' });
    await ours.runs.tell(webRun, 'hurry up');
    expect((await ours.runs.messages(webRun)).map(({ text }) => text)).toEqual(['hurry up']);
    for (const ref of [shopRun, 'shop-run', 'nobody']) {
      const attempts = [
        () => ours.runs.get(ref),
        () => ours.runs.listEvents(ref),
        () => ours.runs.steps(ref),
        () => ours.runs.tell(ref, 'stop'),
        () => ours.runs.stop(ref),
        () => ours.runs.rewind(ref, 1),
      ];
      for (const attempt of attempts)
        await expect(attempt(), ref).rejects.toMatchObject({
          code: 'not_found',
          message: `there is no run ${ref}`,
        });
    }
    await expect(ours.runs.start({ task: 'more', command: 'true' })).rejects.toMatchObject({
      code: 'forbidden',
    });
    expect((await daemon.client.runs.get(shopRun)).state).not.toBe('cancelled');
    expect(await daemon.client.runs.messages(shopRun)).toEqual([]);
  });

  test('that is tried out is reached by a token of its id, and not by its name', async () => {
    await expect(ours.projects.get('web')).rejects.toMatchObject({ code: 'not_found' });
    await expect(ours.projects.get(tried)).rejects.toMatchObject({ code: 'not_found' });
    const token = await daemon.client.tokens.create({ name: 'tried', scope: `project:${tried}` });
    using own = clientWith(token.secret);
    expect(await own.projects.get(tried)).toMatchObject({ id: tried, name: 'web' });
    await own.projects.report(tried, { name: 'revenue', value: 3 });
    expect((await own.projects.ledger(tried)).map(({ usd }) => usd)).toEqual([3]);
    expect((await own.projects.types()).map(({ name }) => name)).toContain('scripted');
    // What it may cost, whether it goes on, and what starts machines is for administrators.
    const beyond = [
      () => own.projects.limit(tried, { cap_usd: 1_000_000 }),
      () => own.projects.kill(tried),
      () => own.projects.deploy(tried, { type: 'scripted', config: { script: 'true' } }),
      () => own.projects.list(),
      () => own.production.list(),
    ];
    for (const attempt of beyond) await expect(attempt()).rejects.toMatchObject({ code: 'forbidden' });
  });
});

describe('a token', () => {
  let daemon: RunningDaemon;
  beforeAll(async () => {
    daemon = await RunningDaemon.start();
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  test('is no administrator unless one is asked for', async () => {
    const made = await daemon.client.tokens.create({ name: 'plain' });
    expect(made).toMatchObject({ scope: 'project:default', role: 'full', quota: null, person: null });
  });

  test('that looks only reads, and changes and runs nothing', async () => {
    const box = await daemon.client.sandboxes.create({ name: 'looked-at' });
    await box.files.write('/there', 'said');
    const { secret } = await daemon.client.tokens.create({ name: 'look', role: 'read' });
    using look = new Coppice({ url: daemon.url, token: secret });
    expect((await look.sandboxes.get('looked-at')).id).toBe(box.id);
    expect(await look.sandboxes.at('looked-at').files.readText('/there')).toBe('said');
    const there = look.sandboxes.at('looked-at');
    for (const attempt of [
      () => there.exec('true'),
      () => there.files.write('/x', 'x'),
      () => there.snapshot(),
      () => there.destroy(),
      () => look.sandboxes.create(),
    ])
      await expect(attempt()).rejects.toMatchObject({ code: 'forbidden' });
    await box.destroy();
  });

  test('with a quota makes no more than that, with forks and with other tokens of the same person', async () => {
    const quota = { sandboxes: 3, memory_mb: 1024, snapshots: 1 };
    const { tokens } = daemon.client;
    const first = await tokens.create({ name: 'ana-1', scope: 'project:q', person: 'ana', quota });
    const second = await tokens.create({ name: 'ana-2', scope: 'project:q', person: 'ana' });
    using ana = new Coppice({ url: daemon.url, token: first.secret });
    using again = new Coppice({ url: daemon.url, token: second.secret });
    const refused = { code: 'limit_reached' };

    const box = await ana.sandboxes.create({ memory_mb: 256 });
    await expect(ana.sandboxes.create({ memory_mb: 1024 })).rejects.toMatchObject({
      ...refused,
      details: { limit: 'quota.memory_mb', maximum: 1024 },
    });
    await expect(box.update({ memory_mb: 1280 })).rejects.toMatchObject(refused);
    const { sandboxes: forks, failures } = await again.sandboxes.at(box.id).fork({ count: 4 });
    expect(forks.length).toBe(2);
    expect(failures.map(({ code }) => code)).toEqual(['limit_reached', 'limit_reached']);

    await box.snapshot();
    await expect(box.snapshot()).rejects.toMatchObject(refused);
    // Nor with the token that is inside: it is the same sandbox.
    using inside = new Coppice({ url: daemon.url, token: box.token! });
    await expect(inside.sandboxes.at(box.id).snapshot()).rejects.toMatchObject(refused);
    await daemon.client.sandboxes.at(box.id).snapshot();

    for (const sandbox of forks) await sandbox.destroy();
    await (await again.sandboxes.create({ memory_mb: 256 })).destroy();
    await box.destroy();
  });

  test('with a quota is not fooled by calls at once', async () => {
    const made = await daemon.client.tokens.create({
      name: 'hasty',
      scope: 'project:hasty',
      quota: { sandboxes: 2 },
    });
    using hasty = new Coppice({ url: daemon.url, token: made.secret });
    const outcomes = await Promise.allSettled(Array.from({ length: 6 }, () => hasty.sandboxes.create()));
    const sandboxes = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
    expect(sandboxes.length).toBe(2);
    for (const sandbox of sandboxes) await sandbox.destroy();
  });

  test('carries a quota only where it makes sandboxes', async () => {
    const { tokens } = daemon.client;
    await expect(
      tokens.create({ name: 'odd', scope: 'admin', quota: { sandboxes: 1 } }),
    ).rejects.toMatchObject({ code: 'invalid_argument' });
    await expect(tokens.create({ name: 'odd', scope: 'project:../up' })).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });
});
