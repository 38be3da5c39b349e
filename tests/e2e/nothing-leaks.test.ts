import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Agent } from '../mcp/agent.ts';
import { runCli } from './run-cli.ts';

const program = join(import.meta.dirname, '../../packages/cli/src/main.ts');

describe.each(['container', 'gvisor'] as const)('on %s', (driver) => {
  let daemon: RunningDaemon;
  beforeAll(async () => {
    daemon = await RunningDaemon.start({ config: { default_driver: driver } });
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  const names = async (): Promise<string[]> =>
    (await daemon.client.sandboxes.list()).map(({ name }) => name).sort();
  /** Somebody asks for a sandbox and goes away once it runs, just before it is written down. */
  const cutOff = async (name: string, ask: (signal: AbortSignal) => Promise<unknown>): Promise<void> => {
    daemon.holdAt('create.started');
    try {
      const abort = new AbortController();
      const asked = expect(ask(abort.signal)).rejects.toThrow();
      await eventually(`${name} is being made`, async () => (await names()).includes(name), 120_000);
      abort.abort();
      await asked;
      await eventually(`${name} is gone`, async () => !(await names()).includes(name), 120_000);
    } finally {
      daemon.holdAt();
    }
  };

  test('a create or fork whose caller goes away leaves nothing, in every door', async () => {
    // Of another size than those that stand ready.
    const memory_mb = 300;
    await cutOff('cut-sdk', (signal) =>
      daemon.client.sandboxes.create({ name: 'cut-sdk', memory_mb, signal }),
    );
    const { headers, url } = { headers: { authorization: `Bearer ${daemon.token}` }, url: daemon.url };
    await cutOff('cut-http', (signal) =>
      fetch(`${url}/v1/sandboxes`, {
        method: 'POST',
        headers: { ...headers, 'content-type': 'application/json' },
        body: JSON.stringify({ name: 'cut-http', memory_mb }),
        signal,
      }),
    );
    await using agent = await Agent.overHttp(daemon);
    await cutOff('cut-mcp', (signal) =>
      agent.call('workspace_create', { name: 'cut-mcp', memory_mb }, { signal }),
    );
    await cutOff('cut-cli', async (signal) => {
      const env = { ...process.env, COPPICE_HOME: daemon.home };
      const child = spawn(process.execPath, [program, 'create', 'cut-cli', '--memory', '300'], { env });
      signal.addEventListener('abort', () => child.kill('SIGINT'));
      const [code] = await once(child, 'exit');
      if (code !== 0) throw new Error(`ended with ${code}`);
    });
    await using dev = await daemon.client.sandboxes.create({ name: 'dev' });
    await cutOff('cut-fork', (signal) => dev.fork({ name: 'cut-fork', signal }));
    await cutOff('cut-many-3', (signal) => dev.fork({ name_prefix: 'cut-many', count: 3, signal }));
    await eventually('only dev is left', async () => (await names()).join() === 'dev', 120_000);
    await eventually(
      'no snapshot is left',
      async () => (await daemon.client.snapshots.list()).length === 0,
      120_000,
    );
    expect(
      (await daemon.client.tokens.list()).filter(({ name }) => name.startsWith('sandbox-')),
    ).toHaveLength(1);
  });
});

describe('what agents make', () => {
  let daemon: RunningDaemon;
  beforeAll(async () => {
    daemon = await RunningDaemon.start({ config: { limits: { agent_lifetime_s: 3600 } } });
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  const infoOf = async (name: string) =>
    (await daemon.client.sandboxes.list()).find((sandbox) => sandbox.name === name)!;

  test('has a lifetime unless they ask for another, and forks have it too', async () => {
    await using agent = await Agent.overHttp(daemon);
    const made = await agent.ok<{ expires_at: string }>('workspace_create', { name: 'mortal' });
    const { max_lifetime_s: lifetime, created_at } = await infoOf('mortal');
    expect(lifetime).toBe(3600);
    expect(Date.parse(made.expires_at) - Date.parse(created_at)).toBe(3_600_000);
    await agent.ok('workspace_fork', { workspace_id: 'mortal', new_name: 'mortal-fork' });
    expect((await infoOf('mortal-fork')).max_lifetime_s).toBe(3600);
    await agent.ok('workspace_create', { name: 'longer', lifetime_hours: 48 });
    expect((await infoOf('longer')).max_lifetime_s).toBe(172_800);
    for (const workspace_id of ['mortal', 'mortal-fork', 'longer'])
      await agent.ok('workspace_destroy', { workspace_id });
  });

  test('goes with its snapshots, and the answer names those that stay', async () => {
    await using agent = await Agent.overHttp(daemon);
    await agent.ok('workspace_create', { name: 'source' });
    for (const name of ['one', 'two']) await agent.ok('snapshot_create', { workspace_id: 'source', name });
    await agent.ok('workspace_fork', { workspace_id: 'source', snapshot_name: 'one', new_name: 'child' });
    const { snapshots_kept: kept } = await agent.ok<{ snapshots_kept: { name: string; reason: string }[] }>(
      'workspace_destroy',
      { workspace_id: 'source' },
    );
    expect(kept).toMatchObject([{ name: 'one', reason: expect.stringContaining('child') }]);
    await agent.ok('snapshot_create', { workspace_id: 'child', name: 'good' });
    const left = await agent.ok<{ snapshots_kept: unknown[] }>('workspace_destroy', {
      workspace_id: 'child',
      keep_snapshots: true,
    });
    expect(left.snapshots_kept).toMatchObject([{ name: 'good' }]);
    expect((await daemon.client.snapshots.list()).map(({ name }) => name).sort()).toEqual(['good', 'one']);
  });

  test('is destroyed with its snapshots when its lifetime is over; what people make keeps them', async () => {
    await using agent = await Agent.overHttp(daemon);
    await agent.ok('workspace_create', { name: 'brief' });
    await agent.ok('snapshot_create', { workspace_id: 'brief', name: 'of-agents' });
    const mine = await daemon.client.sandboxes.create({ name: 'mine' });
    await mine.snapshot({ name: 'of-people' });
    for (const name of ['brief', 'mine'])
      await daemon.client.sandboxes.at(name).update({ max_lifetime_s: 1 });
    const taken = async () => (await daemon.client.snapshots.list()).map(({ name }) => name);
    await eventually(
      'both are gone',
      async () => (await daemon.client.sandboxes.list()).length === 0,
      120_000,
    );
    await eventually('its snapshot is gone', async () => !(await taken()).includes('of-agents'), 120_000);
    expect(await taken()).toContain('of-people');
  });

  test('people see which snapshots stay, and delete them with their sandbox if they ask', async () => {
    const sandbox = await daemon.client.sandboxes.create({ name: 'kept' });
    await sandbox.snapshot({ name: 'first' });
    expect(await runCli(daemon, 'rm', 'kept')).toMatchObject({
      code: 0,
      stderr: expect.stringContaining('1 snapshot of kept stays: first'),
    });
    const again = await daemon.client.sandboxes.create({ name: 'again' });
    await again.snapshot({ name: 'second' });
    expect(await runCli(daemon, 'rm', 'again', '--snapshots')).toMatchObject({ code: 0, stderr: '' });
    expect((await daemon.client.snapshots.list()).map(({ name }) => name)).not.toContain('second');
  });
});
