import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createConnection } from 'node:net';
import { text } from 'node:stream/consumers';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Agent } from './agent.ts';

/** Sends back in upper case what it was sent. Numbers instead of modules, which are not there. */
const echoServer = `
socket(my $server, 2, 1, 0) or die; setsockopt($server, 1, 2, pack("l", 1));
bind($server, pack("S n C4 x8", 2, 8080, 127, 0, 0, 1)) or die; listen($server, 16) or die;
while (accept(my $client, $server)) { local $/; my $said = <$client>; syswrite($client, uc $said); close $client }`;

const say = async (port: number, message: string): Promise<string> => {
  const socket = createConnection({ port, host: '127.0.0.1', allowHalfOpen: true });
  socket.on('error', () => {});
  socket.end(message);
  return text(socket).catch(() => 'refused');
};

/** Where others of the kind hang, lose or leak something. */
describe('agents can rely on', () => {
  let daemon: RunningDaemon;
  let agent: Agent;

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    agent = await Agent.overHttp(daemon, { session: 'ann' });
  });
  afterAll(async () => {
    await agent?.client.close();
    await daemon?.[Symbol.asyncDispose]();
  });
  const workspace = async (): Promise<{ workspace_id: string }> => {
    const { workspace_id } = await agent.ok<{ workspace_id: string }>('workspace_create');
    return { workspace_id };
  };

  test('commands with much output on both streams, and with children that keep these open', async () => {
    const here = await workspace();
    const command = 'seq 40000; seq 40000 >&2; sleep 2500 & echo done';
    const { stdout, stderr } = await agent.ok<{ stdout: string; stderr: string }>('exec', {
      ...here,
      command,
      max_output_bytes: 1_000_000,
    });
    expect(stdout.length).toBeGreaterThan(200_000);
    expect(stdout).toMatch(/\n40000\ndone\n$/);
    expect(stderr).toMatch(/\n40000\n$/);
    await agent.ok('workspace_destroy', here);
  });

  test('the end of all that a command started, when its time is over', async () => {
    const here = await workspace();
    const command = '(sleep 2600; true) & sleep 2600 | cat';
    await agent.refused('exec', { ...here, command, timeout_secs: 0.5 });
    const left = async () =>
      (
        await agent.ok<{ stdout: string }>('exec', {
          ...here,
          command: "ps -eo args | grep '[s]leep 2600' || true",
        })
      ).stdout;
    await expect.poll(left, { timeout: 60_000 }).toBe('');
    await agent.ok('workspace_destroy', here);
  });

  test('a forward that leads inside through a change of policy, a restart and a rollback', async () => {
    const here = await workspace();
    const { files } = await daemon.client.sandboxes.get(here.workspace_id);
    const libraries = execFileSync('ldd', ['/usr/bin/perl'], { encoding: 'utf8' }).matchAll(/(\/\S+) \(0x/g);
    for (const path of ['/usr/bin/perl', ...[...libraries].map((match) => match[1]!)])
      await files.write(path, readFileSync(path), { mode: '755' });
    await files.write('/serve.pl', echoServer);
    await agent.ok('snapshot_create', { ...here, name: 'with-server' });
    const { host_port: port } = await agent.ok<{ host_port: number }>('port_forward', {
      ...here,
      guest_port: 8080,
    });
    const serve = () => agent.ok('exec_background', { ...here, command: 'exec perl /serve.pl' });
    const answers = () => expect.poll(() => say(port, 'hello'), { timeout: 60_000 }).toBe('HELLO');
    await serve();
    await answers();
    await agent.ok('network_policy', { ...here, allow_inter_vm: true });
    await answers();
    await agent.ok('workspace_stop', here);
    await agent.ok('workspace_start', here);
    await serve();
    await answers();
    await agent.ok('snapshot_restore', { ...here, snapshot_name: 'with-server' });
    await serve();
    await answers();
    expect(await agent.ok('workspace_info', here)).toMatchObject({
      network: { port_forwards: [{ guest_port: 8080, host_port: port }] },
    });
    await agent.ok('workspace_destroy', here);
  });

  test('a swarm that begins nothing where its end would be refused', async () => {
    await using bob = await Agent.overHttp(daemon, { session: 'bob' });
    const theirs = await bob.ok<{ workspace_id: string }>('workspace_create');
    const here = await workspace();
    await agent.ok('snapshot_create', { ...here, name: 'golden' });
    const before = await agent.ok('workspace_list');
    const swarm = {
      golden_workspace: here.workspace_id,
      tasks: [{ name: 'one', command: 'true' }],
      merge_strategy: 'sequential',
    };
    expect(await agent.refused('swarm_run', { ...swarm, merge_target: theirs.workspace_id })).toMatch(
      /forbidden.*\nNext: .*workspace_adopt/,
    );
    // A target without a repository is found out at the end: the workers go all the same.
    await agent.refused('swarm_run', { ...swarm, merge_target: here.workspace_id, cleanup: false });
    expect(await agent.ok('workspace_list')).toEqual(before);
    await bob.ok('workspace_destroy', { workspace_id: theirs.workspace_id });
    await agent.ok('workspace_destroy', here);
  });

  test('progress of what takes long, that grows with each message', async () => {
    const seen: { progress: number; message?: string | undefined }[] = [];
    const name = `slow-${randomBytes(4).toString('hex')}`;
    const prepare = { name, setup_commands: ['true', 'true'] };
    await agent.ok('workspace_prepare', prepare, { onprogress: (step) => seen.push(step) });
    expect(seen.filter(({ message }) => message === 'running true')).toHaveLength(2);
    const grows = () => {
      const steps = seen.map(({ progress }) => progress);
      expect(steps).toEqual([...new Set(steps)].sort((a, b) => a - b));
    };
    grows();
    seen.length = 0;
    const tasks = ['a', 'b'].map((task) => ({ name: task, command: 'true' }));
    const swarm = { golden_workspace: name, tasks };
    await agent.ok('swarm_run', swarm, { onprogress: (step) => seen.push(step) });
    const messages = seen.map(({ message }) => message);
    expect(messages).toEqual(expect.arrayContaining(['running the tasks', 'a done', 'b done']));
    grows();
    // The workers' own steps are no measure of the whole.
    expect(seen.find(({ message }) => message === 'running the tasks')?.progress).toBeLessThan(0.5);
    expect(seen.filter(({ progress }) => progress >= 1).map(({ message }) => message)).toEqual([
      messages.at(-1),
    ]);
    await agent.ok('workspace_destroy', { workspace_id: name });
  });
});
