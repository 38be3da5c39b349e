import { type Action, accessOf, type Route, routes } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { allToolsets } from '../../packages/daemon/src/doors/mcp/registry.ts';
import { Agent } from '../mcp/agent.ts';
import { rawCall } from './raw-call.ts';

const tools = Object.values(allToolsets).flat();

/** As HTTP answers it, with everything filled in; what no route does is for administrators. */
const httpRefuses = async (url: string, token: string, sandbox: string, action: Action): Promise<boolean> => {
  const route = (routes as Record<string, Route>)[action];
  if (route === undefined) return accessOf(action) === 'admin';
  const path = route.path
    .replace(':sandbox', sandbox)
    .replaceAll(/:(job|terminal|port)/g, '4000')
    .replaceAll(/:\w+/g, 'some');
  const answer = await rawCall(url, {
    method: route.method,
    path,
    token,
    headers: { 'content-type': 'application/json' },
    // Refused by every schema, so that nothing is done: who may call is decided before that.
    body: '[]',
  });
  return answer.status === 403;
};

const expectSameThroughEveryDoor = async (
  daemon: RunningDaemon,
  agent: Agent,
  token: string,
  sandbox: string,
): Promise<void> => {
  const offered = new Set((await agent.client.listTools()).tools.map(({ name }) => name));
  expect(tools.length).toBeGreaterThan(45);
  for (const { name, actions } of tools) {
    expect(actions.length, name).toBeGreaterThan(0);
    const refused = (
      await Promise.all(actions.map((action) => httpRefuses(daemon.url, token, sandbox, action)))
    ).some((verdict) => verdict);
    expect(offered.has(name), name).toBe(!refused);
  }
};

describe.each([
  ['of a project', 'full'],
  ['of a project that looks only', 'read'],
] as const)('a token %s', (_what, role) => {
  test('may do the same through every door', async () => {
    await using daemon = await RunningDaemon.start();
    const box = await daemon.client.sandboxes.create({ name: 'box', project: 'web' });
    const { secret } = await daemon.client.tokens.create({ name: 'web', scope: 'project:web', role });
    await using agent = await Agent.overHttp(daemon, { token: secret });
    await expectSameThroughEveryDoor(daemon, agent, secret, box.id);
  });
});

describe('the token of a sandbox', () => {
  let daemon: RunningDaemon;
  let mine: Sandbox;
  let agent: Agent;

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    mine = await daemon.client.sandboxes.create({ name: 'mine' });
    await mine.snapshot({ name: 'kept' });
    agent = await Agent.overHttp(daemon, { token: mine.token! });
  });
  afterAll(async () => {
    await agent?.[Symbol.asyncDispose]();
    await daemon?.[Symbol.asyncDispose]();
  });

  test('may do the same through every door: a tool is offered where HTTP allows all that it does', async () => {
    await expectSameThroughEveryDoor(daemon, agent, mine.token!, mine.id);
  });

  test('cannot open ports, delete snapshots or see what grew from what by asking an agent’s way', async () => {
    const attempts = [
      ['port_forward', { workspace_id: 'mine', guest_port: 8080 }],
      ['port_forward_remove', { workspace_id: 'mine', guest_port: 8080 }],
      ['snapshot_delete', { workspace_id: 'mine', snapshot_name: 'kept' }],
      ['snapshot_diff', { workspace_id: 'mine', snapshot_name: 'kept' }],
      ['set_env', { workspace_id: 'mine', vars: { A: 'b' } }],
      ['network_policy', { workspace_id: 'mine', allow_internet: true }],
    ] as const;
    for (const [name, args] of attempts)
      await expect(agent.call(name, args), name).rejects.toThrow(/no tool/);
    await expect(agent.client.readResource({ uri: 'coppice://lineage' })).rejects.toThrow(/forbidden/);
    expect((await agent.client.listResources()).resources.map(({ uri }) => uri)).not.toContain(
      'coppice://lineage',
    );
    expect((await mine.snapshots()).map(({ name }) => name)).toEqual(['kept']);
    expect((await mine.inspect()).forwards).toEqual([]);
  });
});

describe('what a call is given', () => {
  let daemon: RunningDaemon;
  let box: Sandbox;
  let agent: Agent;

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    agent = await Agent.overHttp(daemon, { session: 'one' });
    const { workspace_id } = await agent.ok<{ workspace_id: string }>('workspace_create', { name: 'box' });
    box = daemon.client.sandboxes.at(workspace_id);
  });
  afterAll(async () => {
    await agent?.[Symbol.asyncDispose]();
    await daemon?.[Symbol.asyncDispose]();
  });

  const numbered = (count: number, value: string) =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`V${index}`, value]));
  const badEnvironments: Readonly<Record<string, Record<string, string>>> = {
    'a NUL byte': { A: 'a\0b' },
    'a variable larger than the kernel takes': { A: 'é'.repeat(65_535) },
    'more than a process can be given': numbered(25, 'x'.repeat(120_000)),
    'too many variables': numbered(2000, 'x'),
    'no name': { '': 'x' },
    'a name with =': { 'A=B': 'x' },
  };

  test.each(Object.entries(badEnvironments))(
    'an environment with %s is refused by HTTP and by MCP, and commands still run',
    async (_what, env) => {
      const workspace_id = 'box';
      const http = [
        () => box.update({ env }),
        () => box.exec('true', { env }),
        () => box.jobs.start('true', { env }),
        () => daemon.client.sandboxes.create({ env }),
        () => box.fork({ env }),
      ];
      for (const work of http) await expect(work()).rejects.toMatchObject({ code: 'invalid_argument' });
      const tools = [
        ['set_env', { workspace_id, vars: env }],
        ['exec', { workspace_id, command: 'true', env }],
        ['exec_background', { workspace_id, command: 'true', env }],
        ['exec_parallel', { workspace_ids: [workspace_id], commands: 'true', env }],
      ] as const;
      for (const [tool, args] of tools)
        expect(await agent.refused(tool, args), tool).toMatch(/^invalid_argument: /);
      expect((await box.exec('echo fine')).stdout).toBe('fine\n');
      expect(await agent.ok('exec', { workspace_id, command: 'echo fine' })).toMatchObject({
        stdout: 'fine\n',
      });
    },
  );

  test('paths that no file has are refused by both, in resources and after they were made absolute too', async () => {
    const long = `/${'x/'.repeat(2100)}`;
    for (const path of ['/a\0b', long]) {
      await expect(box.files.read(path)).rejects.toMatchObject({ code: 'invalid_argument' });
      expect(await agent.refused('file_read', { workspace_id: 'box', path })).toMatch(/^invalid_argument: /);
      const uri = `coppice://sandbox/${box.id}/file${encodeURI(path)}`;
      await expect(agent.client.readResource({ uri })).rejects.toThrow(/invalid_argument/);
    }
    const relative = 'x/'.repeat(2047);
    expect(await agent.refused('file_write', { workspace_id: 'box', path: relative, content: '' })).toMatch(
      /^invalid_argument: /,
    );
  });
});
