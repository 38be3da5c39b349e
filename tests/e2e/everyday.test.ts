import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { eventually, type RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Agent } from '../mcp/agent.ts';
import { daemonWithGit } from '../mcp/git-image.ts';

/** What people and agents do all day, on every driver. */
let daemon: RunningDaemon;
beforeAll(async () => {
  daemon = await daemonWithGit();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

const run = promisify(execFile);
const program = join(import.meta.dirname, '../../packages/cli/src/main.ts');
const cli = (...argv: string[]): Promise<{ stdout: string; stderr: string }> =>
  run(process.execPath, [program, '--home', daemon.home, ...argv]).catch((error) => error);

const identity =
  'export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c';

describe.each(['container', 'gvisor'] as const)('a sandbox of %s', (driver) => {
  test('takes a repository in /workspace for its own, as do its forks and what it is restored to', async () => {
    await using sandbox = await daemon.client.sandboxes.create({ driver });
    const commit = `${identity}; cd /workspace && echo x >> file && git add -A && git commit -qm one && git log --format=%s`;
    expect(await sandbox.exec(`cd /workspace && git init -q --template= && ${commit}`)).toMatchObject({
      exit_code: 0,
      stdout: 'one\n',
      stderr: '',
    });
    const snapshot = await sandbox.snapshot();
    const [fork] = (await sandbox.fork()).sandboxes;
    expect(await fork!.exec(commit)).toMatchObject({ stdout: 'one\none\n', stderr: '' });
    await fork!.destroy();
    await sandbox.restore(snapshot.id);
    expect(await sandbox.exec(commit)).toMatchObject({ stdout: 'one\none\n', stderr: '' });
  });

  test('knows its own name and that of the host, after a fork and a new policy too, and refuses a lookup', async () => {
    await using sandbox = await daemon.client.sandboxes.create({ driver, name: `named-${driver}` });
    const hosts = async (of: typeof sandbox) => (await of.exec('cat /etc/hosts')).stdout;
    expect(await hosts(sandbox)).toMatch(new RegExp(`^127\\.0\\.1\\.1 named-${driver}\\b`, 'm'));
    await sandbox.exec('echo "192.0.2.1 added" >> /etc/hosts');
    const [fork] = (await sandbox.fork({ name: `twin-${driver}` })).sandboxes;
    expect(await hosts(fork!)).toMatch(new RegExp(`^127\\.0\\.1\\.1 twin-${driver}\\b`, 'm'));
    expect(await hosts(fork!)).not.toContain(`named-${driver}`);
    await fork!.destroy();
    await sandbox.setNetwork({ allow_host_ports: [9] });
    await eventually('the gateway has a name', async () =>
      /^10\.\d+\.\d+\.1 host\.coppice\b/m.test(await hosts(sandbox)),
    );
    expect(await hosts(sandbox)).toContain('192.0.2.1 added');
    const lookup = 'exec 3<>/dev/udp/1.1.1.1/53 && echo x >&3 && read -t 30 -u 3 answer; echo $?';
    // Less than the 30 s that a packet without an answer would take: `read` ends with 1, and with more than 128 after its time.
    expect((await sandbox.exec(lookup)).stdout).toMatch(/^1\n$/m);
  });

  test('says what a command ran out of: memory, processes or disk', async () => {
    const size = { memory_mb: 96, disk_mb: 64, pids: 23 };
    await using sandbox = await daemon.client.sandboxes.create({ driver, ...size });
    expect(await sandbox.exec('true')).not.toHaveProperty('ran_out');
    expect(await sandbox.exec('false')).not.toHaveProperty('ran_out');
    const full = await sandbox.exec('dd if=/dev/zero of=/big bs=1M count=200; code=$?; rm /big; exit $code');
    expect(full).toMatchObject({ exit_code: 1, ran_out: 'disk' });
    if (driver === 'container') {
      const sleepers = Array.from({ length: 21 }, () => sandbox.jobs.start(['sleep', '600']));
      const started = await Promise.all(sleepers);
      expect(await sandbox.exec(['find', '/etc', '-maxdepth', '0', '-exec', 'true', ';'])).toMatchObject({
        ran_out: 'processes',
      });
      for (const { id } of started) await sandbox.jobs.kill(id, 9);
    }
    const greedy = 'head -c 800M /dev/zero | tail -c 800M | wc -c';
    if (driver === 'container') {
      expect(await sandbox.exec(greedy)).toMatchObject({ ran_out: 'memory' });
      const told = await cli('exec', sandbox.id, greedy);
      expect(told.stderr).toContain('memory ran out');
    } else {
      await expect(sandbox.exec(greedy)).rejects.toThrow('ran out of memory');
    }
  });
});

test('what git_clone brought to its default place is a repository of the one who works there', async () => {
  await using agent = await Agent.overHttp(daemon);
  const { workspace_id: id } = await agent.ok('workspace_create', { name: 'clone' });
  const run = (command: string) => agent.ok('exec', { workspace_id: id, command });
  await run(
    `${identity}; git init -q --template= /srv/up && cd /srv/up && git commit -q --allow-empty -m first`,
  );
  await agent.ok('git_clone', { workspace_id: id, url: '/srv/up' });
  expect(await run('cd /workspace && git log --format=%s')).toMatchObject({ stdout: 'first\n', stderr: '' });
  await agent.ok('workspace_destroy', { workspace_id: id });
});

test('ordinary values of variables are shown to an agent, and it writes back what it read', async () => {
  await using agent = await Agent.overHttp(daemon);
  await agent.ok('workspace_create', { name: 'plain' });
  const at = { workspace_id: 'plain', path: 'config.py' };
  const vars = { GIT_AUTHOR_NAME: 'Thomas', MAX_TOKENS: '100000', PRIMARY_KEY: 'user_id' };
  await agent.ok('set_env', { workspace_id: 'plain', vars });
  const content = 'author = "Thomas"\nlimit = 100000\nkey = "user_id"\n';
  await agent.ok('file_write', { ...at, content });
  const read = await agent.ok('file_read', at);
  expect(read).toMatchObject({ content });
  expect(read).not.toHaveProperty('redacted');
  await agent.ok('file_edit', { ...at, old_string: 'limit = 100000', new_string: 'limit = 100001' });
  await agent.ok('workspace_destroy', { workspace_id: 'plain' });
});

test('a secret is masked and the answer says so; what was masked is not written back, by no tool', async () => {
  await using agent = await Agent.overHttp(daemon);
  await agent.ok('workspace_create', { name: 'masked' });
  const at = { workspace_id: 'masked', path: '.npmrc' };
  const secret = 'npm-0123456789-secret';
  await agent.ok('set_env', { workspace_id: 'masked', vars: { NPM_TOKEN: secret } });
  await agent.ok('exec', {
    workspace_id: 'masked',
    command: 'echo "token=$NPM_TOKEN # mine" > /workspace/.npmrc',
  });
  const { content, ...rest } = await agent.ok<{ content: string; redacted?: true }>('file_read', at);
  expect(content).not.toContain(secret);
  expect(rest).toMatchObject({ redacted: true });
  const shown = await agent.call('file_read', at);
  expect(JSON.stringify(shown.content)).toContain('[REDACTED: ');
  expect(
    await agent.ok('exec', { workspace_id: 'masked', command: 'cat .npmrc', workdir: '/workspace' }),
  ).toMatchObject({ redacted: true });
  const packed = await agent.ok<{ stdout: string }>('exec', {
    workspace_id: 'masked',
    command: 'base64 /workspace/.npmrc',
  });
  for (const [tool, args] of [
    ['file_write', { ...at, content }],
    ['file_write', { ...at, content: packed.stdout, encoding: 'base64' }],
    ['file_edit', { ...at, old_string: 'mine', new_string: content }],
    ['file_edit', { ...at, old_string: content, new_string: 'x' }],
    ['exec', { workspace_id: 'masked', command: `printf %s '${content}' > /workspace/.npmrc` }],
    ['set_env', { workspace_id: 'masked', vars: { OTHER: content } }],
  ] as const)
    expect(await agent.refused(tool, args)).toContain('Nothing was changed');
  await agent.ok('file_edit', { ...at, old_string: '# mine', new_string: '# ours' });
  const { stdout } = await (await daemon.client.sandboxes.get('masked')).exec('cat /workspace/.npmrc');
  expect(stdout).toBe(`token=${secret} # ours\n`);
  await agent.ok('workspace_destroy', { workspace_id: 'masked' });
});

test('all of a sandbox is copied out, without what its kernel only shows as files', async () => {
  await using sandbox = await daemon.client.sandboxes.create({ name: 'whole' });
  await sandbox.exec('echo mine > /root/mine');
  const directory = await mkdtemp(join(tmpdir(), 'coppice-cp-'));
  try {
    expect(await cli('cp', 'whole:/', join(directory, 'x'))).toMatchObject({
      stderr: expect.not.stringContaining('error'),
    });
    expect(await readFile(join(directory, 'x/root/mine'), 'utf8')).toBe('mine\n');
    for (const place of ['proc', 'sys/fs/cgroup/memory'])
      expect(await readdir(join(directory, 'x', place)).catch(() => [])).toEqual([]);
    expect(await readdir(join(directory, 'x/usr/bin'))).toContain('git');
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});

test('the list of sandboxes shows what each may reach, and options that contradict each other are refused', async () => {
  await using sandbox = await daemon.client.sandboxes.create({ name: 'reaching' });
  await cli('net', 'reaching', '--allow', '203.0.113.7');
  expect((await cli('ls')).stdout).toMatch(/reaching .* 203\.0\.113\.7 /);
  const both = await cli('net', sandbox.id, '--internet', '--allow', '203.0.113.8');
  expect(both.stderr).toContain('reaches only what is named');
  expect((await cli('net', 'reaching')).stdout).toContain('203.0.113.7');
});

test('a terminal that is left while an editor runs in it is as it was before', async () => {
  await using sandbox = await daemon.client.sandboxes.create({ name: 'editing' });
  const editor = String.raw`printf '\033[?1049h\033[?2004h\033[?1000;1006hdrawn'; exec sleep 600`;
  const command = [
    process.execPath,
    program,
    '--home',
    daemon.home,
    'shell',
    sandbox.name,
    '--',
    'sh',
    '-c',
    editor,
  ];
  const quoted = command.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ');
  const left = spawn('script', ['-qec', quoted, '/dev/null']);
  let shown = '';
  left.stdout.on('data', (chunk: Buffer) => {
    if (!shown.includes('drawn') && (shown + chunk).includes('drawn')) left.stdin.write('\x1d');
    shown += chunk.toString('latin1');
  });
  await once(left, 'close');
  const after = shown.slice(shown.indexOf('drawn'));
  for (const mode of ['1049', '2004', '1000', '1006']) expect(after).toContain(`\x1b[?${mode}l`);
  expect(after).toContain('left terminal');
});

test('an agent of an administrator mounts directories of the host, and sees them where it looks at the workspace', async () => {
  const directory = await realpath(await mkdtemp(join(tmpdir(), 'coppice-mounted-')));
  try {
    await writeFile(join(directory, 'from-host'), 'hello');
    await using agent = await Agent.overHttp(daemon);
    const mounts = [`${directory}:/srv/shared`, `${directory}:/data:ro`];
    const { workspace_id: id } = await agent.ok('workspace_create', { name: 'mounted', mounts });
    const command = 'cat /data/from-host; echo x > /data/no; echo back > /srv/shared/made';
    expect(await agent.ok('exec', { workspace_id: id, command })).toMatchObject({ stdout: 'hello' });
    expect(await readdir(directory)).toEqual(['from-host', 'made']);
    expect(await agent.ok('workspace_info', { workspace_id: id })).toMatchObject({ mounts });
    await agent.ok('workspace_destroy', { workspace_id: id });
    for (const wrong of [directory, `${directory}:/etc`, `${directory}:data`])
      await agent.refused('workspace_create', { mounts: [wrong] });
    const { secret: token } = await daemon.client.tokens.create({ name: 'one', scope: 'project:default' });
    await using other = await Agent.overHttp(daemon, { token });
    const refused = await other.refused('workspace_create', { mounts });
    expect(refused).toContain('reaches beyond the project');
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});
