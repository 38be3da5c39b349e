import { registryRefusal, skipFor } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ImageBench } from '../e2e/image-bench.ts';
import { Agent, type Answer } from './agent.ts';

describe('tools for images', skipFor(registryRefusal()), () => {
  let bench: ImageBench;
  let agent: Agent;
  let base: string;
  const box = { workspace_id: 'box' };

  beforeAll(async () => {
    if (registryRefusal() !== undefined) return;
    bench = await ImageBench.open();
    base = await bench.put('mcp/base:1', {
      layers: [bench.shell],
      config: { Cmd: ['/bin/sh'], WorkingDir: '/srv', ExposedPorts: { '80/tcp': {} } },
    });
    agent = await Agent.overHttp(bench.daemon, { select: { toolsets: 'all' } });
  });
  afterAll(async () => {
    await agent?.client.close();
    await bench?.[Symbol.asyncDispose]();
  });

  test('pull, inspect, build from files of a workspace, commit and push, and another tool has what was pushed', async () => {
    expect(await agent.ok('image_pull', { image: base })).toMatchObject({ image: base, layers: 1 });
    expect(await agent.ok('image_inspect', { image: base })).toMatchObject({
      cmd: ['/bin/sh'],
      working_dir: '/srv',
      exposed_ports: ['80/tcp'],
    });
    await agent.ok('workspace_create', { name: 'box', base_image: base });
    await agent.ok('file_write', { ...box, path: 'app/hello', content: 'from the workspace' });
    await agent.ok('file_write', {
      ...box,
      path: 'app/Dockerfile',
      content: `FROM ${base}\nARG WORD\nCOPY hello /hello\nRUN echo "$WORD" >> /hello\nCMD ["cat", "/hello"]\n`,
    });
    const input = { ...box, name: 'team/app:1', path: 'app', build_args: { WORD: 'and built' } };
    expect(await agent.ok('image_build', input)).toMatchObject({
      image: 'team/app:1',
      cmd: ['cat', '/hello'],
      cached_steps: 0,
    });
    const again = await agent.ok<{ cached_steps: number }>('image_build', input);
    expect(again.cached_steps).toBeGreaterThanOrEqual(2);
    await agent.ok('workspace_create', { name: 'built', base_image: 'team/app:1' });
    expect(await agent.ok('exec', { workspace_id: 'built', command: 'cat /hello' })).toMatchObject({
      stdout: 'from the workspaceand built\n',
    });

    await agent.ok('exec', { ...box, command: 'echo kept > /kept' });
    await agent.ok('snapshot_create', { ...box, name: 'state' });
    await agent.ok('exec', { ...box, command: 'echo later > /later' });
    const commit = { ...box, snapshot_name: 'state', name: 'team/state:1', comment: 'by an agent' };
    expect(await agent.ok('image_commit', commit)).toMatchObject({ image: 'team/state:1', layers: 2 });
    const to = `${bench.registry.host}/team/state:1`;
    const pushed = await agent.ok<{ digest: string }>('image_push', { image: 'team/state:1', to });
    await bench.client.images.remove('team/state:1');
    expect((await bench.client.images.pull(to)).registry_digest).toBe(pushed.digest);
    await using back = await bench.client.sandboxes.create({ image: to });
    expect((await back.exec('cat /kept; ls /later 2>&1 | wc -l')).stdout).toBe('kept\n1\n');
  });

  test('say what a failing step said, and refuse files of another session', async () => {
    const { workspace_id } = await agent.ok<{ workspace_id: string }>('workspace_create', {
      base_image: base,
    });
    const failing = { workspace_id, name: 'team/failing:1' };
    await agent.ok('file_write', {
      workspace_id,
      path: 'Dockerfile',
      content: `FROM ${base}\nRUN echo the reason is here; exit 3\n`,
    });
    const said = await agent.refused('image_build', failing);
    expect(said).toContain('the reason is here');
    expect(said).toContain('line 2');
    await using other = await Agent.overHttp(bench.daemon, { select: { toolsets: 'all' }, session: 'other' });
    expect(await other.refused('image_build', failing)).toContain('belongs to');
    expect(await other.refused('image_commit', { workspace_id, name: 'team/x:1' })).toContain('belongs to');
  });

  test('are offered to administrators; a project lists and inspects', async () => {
    const { tools } = await agent.client.listTools();
    const { secret } = await bench.client.tokens.create({
      name: 'member',
      scope: 'project:blue',
    });
    await using member = await Agent.overHttp(bench.daemon, { select: { toolsets: 'all' }, token: secret });
    const names = (listed: readonly Answer[]) =>
      listed
        .map(({ name }) => name as string)
        .filter((name) => name.startsWith('image_'))
        .sort();
    expect(names(tools as unknown as Answer[])).toEqual([
      'image_build',
      'image_commit',
      'image_inspect',
      'image_list',
      'image_pull',
      'image_push',
    ]);
    expect(names((await member.client.listTools()).tools as unknown as Answer[])).toEqual([
      'image_inspect',
      'image_list',
    ]);
  });
});
