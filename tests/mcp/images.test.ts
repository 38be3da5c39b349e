import { readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { registryRefusal, skipFor } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ImageBench, run } from '../e2e/image-bench.ts';
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

  const workspaceOf = async (base_image: string) => {
    const made = await agent.ok<{ workspace_id: string; name: string }>('workspace_create', { base_image });
    return { here: { workspace_id: made.workspace_id }, name: made.name };
  };

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

  test('export to the transfer directory and import from it, and no path leads elsewhere', async () => {
    const directory = join(bench.daemon.home, 'transfer');
    const { here } = await workspaceOf(base);
    await agent.ok('exec', { ...here, command: 'echo moved > /moved' });
    await agent.ok('image_commit', { ...here, name: 'team/moved:1' });
    const before = await agent.ok<{ digest: string }>('image_inspect', { image: 'team/moved:1' });
    const out = { image: 'team/moved:1', host_path: 'out/moved.tar' };
    const { bytes } = await agent.ok<{ bytes: number }>('image_export', out);
    const file = join(directory, 'out/moved.tar');
    expect((await stat(file)).size).toBe(bytes);
    await run('skopeo', ['inspect', `oci-archive:${file}`]);
    await agent.ok('image_remove', { image: 'team/moved:1' });
    expect(await agent.refused('image_inspect', { image: 'team/moved:1' })).toMatch(/^not_found: /);
    expect(await agent.ok('image_import', { host_path: file })).toMatchObject({
      image: 'team/moved:1',
      digest: before.digest,
    });
    await agent.ok('image_import', { host_path: 'out/moved.tar', name: 'team/again:2' });
    const again = await workspaceOf('team/again:2');
    expect(await agent.ok('exec', { ...again.here, command: 'cat /moved' })).toMatchObject({
      stdout: 'moved\n',
    });

    const secret = join(bench.daemon.home, 'token');
    for (const link of ['up', 'link']) await rm(join(directory, link), { force: true });
    await symlink(bench.daemon.home, join(directory, 'up'));
    await symlink(file, join(directory, 'link'));
    const kept = await readFile(secret);
    for (const host_path of [secret, '../token', 'out/../../token', 'up/token', 'link', '/etc/passwd']) {
      expect(await agent.refused('image_export', { ...out, host_path }), host_path).toMatch(/^unsafe: /);
      expect(await agent.refused('image_import', { host_path, name: 'x:1' }), host_path).toMatch(/^unsafe: /);
    }
    expect(await readFile(secret)).toEqual(kept);
    expect(await agent.refused('image_import', { host_path: 'none.tar' })).toMatch(
      /^not_found: .*\nNext: Put the file into the transfer directory/,
    );
    // What is no image leaves none, and an export of none writes no file.
    await writeFile(join(directory, 'text'), 'no archive');
    expect(await agent.refused('image_import', { host_path: 'text', name: 'text:1' })).toMatch(
      /^invalid_argument: /,
    );
    expect(await agent.refused('image_inspect', { image: 'text:1' })).toMatch(/^not_found: /);
    expect(await agent.refused('image_export', { image: 'text:1', host_path: 'out/none.tar' })).toMatch(
      /^not_found: .*\nNext: Call image_list/,
    );
    expect(await readdir(join(directory, 'out'))).toEqual(['moved.tar']);
  });

  test('remove what nothing uses, one image or all', async () => {
    const { here, name: user } = await workspaceOf(base);
    const commit = async (word: string): Promise<Answer> => {
      await agent.ok('exec', { ...here, command: `echo ${word} > /word` });
      return agent.ok('image_commit', { ...here, name: 'team/pruned:1' });
    };
    const older = await commit('older');
    await commit('newer');
    const used = await agent.refused('image_remove', { image: base });
    expect(used).toMatch(/^in_use: /);
    expect(used).toContain(user);
    expect(used).toContain('Next: Call workspace_list');
    const names = async (): Promise<string[]> =>
      (await agent.ok<{ images: { name: string }[] }>('image_list')).images.map(({ name }) => name);
    // The older one has lost its name: it goes; what still has a name stays, unless all are to go.
    expect(await agent.ok('image_prune')).toMatchObject({
      removed: [`team/pruned@${older.digest}`],
      build_snapshots: 0,
    });
    expect(await names()).toContain('team/pruned:1');
    expect(await agent.ok('image_prune', { all: true, builds: true })).toMatchObject({
      removed: expect.arrayContaining(['team/pruned:1']),
      freed_bytes: expect.any(Number),
    });
    expect(await names()).not.toContain('team/pruned:1');
    expect(await names()).toContain(base);
    expect(await agent.refused('image_remove', { image: 'team/pruned:1' })).toMatch(/^not_found: /);
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
      'image_export',
      'image_import',
      'image_inspect',
      'image_list',
      'image_prune',
      'image_pull',
      'image_push',
      'image_remove',
    ]);
    expect(names((await member.client.listTools()).tools as unknown as Answer[])).toEqual([
      'image_inspect',
      'image_list',
    ]);
  });
});
