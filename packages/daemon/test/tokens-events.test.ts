import { cpSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Coppice } from '@coppice/sdk';
import { eventually, RunningDaemon, tinyImage } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

describe('tokens, events and health', () => {
  let daemon: RunningDaemon;
  beforeAll(async () => {
    daemon = await RunningDaemon.start();
  });
  afterAll(() => daemon[Symbol.asyncDispose]());

  const as = (token: string) => new Coppice({ url: daemon.url, token }, {});

  test('the first token is for root alone, and its secret is nowhere else in the home', () => {
    expect(statSync(join(daemon.home, 'token')).mode & 0o777).toBe(0o600);
    expect(statSync(daemon.home).mode & 0o777).toBe(0o700);
    for (const file of ['coppice.db', 'log/daemon.log'])
      expect(readFileSync(join(daemon.home, file), 'latin1')).not.toContain(daemon.token);
  });

  test('a further token works until it is revoked', async () => {
    const { id, secret } = await daemon.client.tokens.create({ name: 'helper' });
    using helper = as(secret);
    expect(await helper.sandboxes.list()).toEqual([]);
    await expect(daemon.client.tokens.create({ name: 'helper' })).rejects.toMatchObject({
      code: 'name_taken',
    });
    expect((await daemon.client.tokens.list()).find((token) => token.id === id)?.last_used_at).not.toBeNull();
    await daemon.client.tokens.revoke('helper');
    await expect(helper.sandboxes.list()).rejects.toMatchObject({ code: 'unauthenticated' });
  });

  test("a sandbox's own token reaches it, no other, and ends with it", async () => {
    const one = await daemon.client.sandboxes.create();
    await using other = await daemon.client.sandboxes.create();
    using own = as(one.token!);
    expect((await own.sandboxes.at(one.id).exec('echo mine')).stdout).toBe('mine\n');
    await expect(own.sandboxes.at(other.id).exec('true')).rejects.toMatchObject({ code: 'forbidden' });
    await expect(own.sandboxes.list()).rejects.toMatchObject({ code: 'forbidden' });
    await one.destroy();
    await expect(own.sandboxes.at(one.id).exec('true')).rejects.toMatchObject({ code: 'unauthenticated' });
  });

  test('events tell the life of a sandbox in order, without a gap, to those who wait for them', async () => {
    const abort = new AbortController();
    const { last_seq: after } = await daemon.client.events.list();
    const seen: string[] = [];
    const reading = (async () => {
      for await (const event of daemon.client.events.stream({ after, signal: abort.signal })) {
        seen.push(`${event.seq - after} ${event.type}`);
        if (event.type === 'sandbox.destroyed') break;
      }
    })();
    const sandbox = await daemon.client.sandboxes.create({ env: { SECRET: 'hush-hush' } });
    await sandbox.snapshot();
    await sandbox.stop({ grace_s: 0 });
    await sandbox.destroy();
    await reading;
    abort.abort();
    expect(seen).toEqual([
      '1 sandbox.created',
      '2 snapshot.created',
      '3 sandbox.stopped',
      '4 sandbox.destroyed',
    ]);
    expect(JSON.stringify(await daemon.client.events.list())).not.toContain('hush-hush');
  });

  test('doctor, health and metrics say how it is', async () => {
    await using sandbox = await daemon.client.sandboxes.create();
    const doctor = await daemon.client.doctor();
    expect(doctor).toMatchObject({ healthy: true, engine: 'btrfs', driver: 'container' });
    expect(doctor.drivers.container?.usable).toBe(true);
    expect(await daemon.client.health()).toMatchObject({ status: 'ok', sandboxes: 1 });
    expect(await daemon.client.metrics()).toContain('coppice_sandboxes{state="running"} 1');
    await sandbox.exec('true');
    await fetch(`${daemon.url}/v1/nowhere-at-all`);
    const metrics = await daemon.client.metrics();
    const counted = (method: string, route: string, status: number) =>
      `coppice_request_seconds_count{method="${method}",route="${route}",status="${status}"}`;
    expect(metrics).toContain(counted('POST', '/v1/sandboxes', 201));
    expect(metrics).toContain(counted('GET', 'none', 404));
    // Numbers that grow with every sandbox would be no numbers for long.
    expect(metrics).not.toContain(sandbox.id);
    expect(metrics).not.toContain('nowhere-at-all');
  });
});

test('the warm pool gives a sandbox of the default shape with its own name, and fills up again', async () => {
  await using daemon = await RunningDaemon.start({ config: { warm_pool: 1 } });
  const warm = async () => (await daemon.client.metrics()).includes('coppice_warm_sandboxes 1');
  for (const name of ['first', 'second']) {
    await eventually('one is warm', warm);
    const sandbox = await daemon.client.sandboxes.create({ name, env: { A: '1' } });
    expect(sandbox.info).toMatchObject({ from_pool: true });
    expect((await sandbox.exec('echo $(hostname) $A')).stdout).toBe(`${name} 1\n`);
  }
  const other = await daemon.client.sandboxes.create({ memory_mb: 64 });
  expect(other.info).toMatchObject({ from_pool: false });
  await eventually('one is warm', warm);
  await daemon.kill();
  await daemon.restart();
  await eventually('the old one is swept and a new one is warm', async () => {
    return (await warm()) && daemon.traces.machines().length === 4 && daemon.traces.disks().length === 4;
  });
});

test('a warm sandbox has the name that its creation answers, whoever else asks at the same time', async () => {
  await using daemon = await RunningDaemon.start({ config: { warm_pool: 2 } });
  await eventually('two are warm', async () =>
    (await daemon.client.metrics()).includes('coppice_warm_sandboxes 2\n'),
  );
  const sandboxes = await Promise.all(
    [{}, { name: 'chosen' }, {}, {}].map((input) => daemon.client.sandboxes.create(input)),
  );
  const names = sandboxes.map((sandbox) => sandbox.info!.name);
  expect(new Set(names).size).toBe(4);
  expect(names[1]).toBe('chosen');
  const said = await Promise.all(sandboxes.map((sandbox) => sandbox.exec(['hostname'])));
  expect(said.map(({ stdout }) => stdout.trim())).toEqual(names);
});

test('what is warm on an image that was removed is never given out for the one that came under its name', async () => {
  await using daemon = await RunningDaemon.start({ config: { warm_pool: 1 } });
  const warm = async (count: number) =>
    (await daemon.client.metrics()).includes(`coppice_warm_sandboxes ${count}\n`);
  await eventually('one is warm', () => warm(1));
  const changed = mkdtempSync(join(tmpdir(), 'coppice-image-'));
  try {
    cpSync(await tinyImage(), changed, { recursive: true, verbatimSymlinks: true });
    writeFileSync(join(changed, 'etc/changed'), 'yes');
    await daemon.client.images.remove('tiny');
    await eventually('none is warm', () => warm(0));
    await daemon.client.images.make({ name: 'tiny', source: changed });
    const sandbox = await daemon.client.sandboxes.create();
    expect((await sandbox.exec('cat /etc/changed')).stdout).toBe('yes');
    await eventually('one is warm', () => warm(1));
    const next = await daemon.client.sandboxes.create();
    expect(next.info).toMatchObject({ from_pool: true });
    expect((await next.exec('cat /etc/changed')).stdout).toBe('yes');
  } finally {
    rmSync(changed, { recursive: true });
  }
});
