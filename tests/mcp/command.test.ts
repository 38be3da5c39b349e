import { once } from 'node:events';
import { lstat, mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CliHome } from '../e2e/cli-home.ts';
import { Agent } from './agent.ts';

let cli: CliHome;

beforeAll(async () => {
  cli = await CliHome.make();
});
afterAll(() => cli?.remove());

describe('coppice mcp', () => {
  test('starts a daemon where none runs, two at once start one, and it stays when they go', async () => {
    const agents = await Promise.all([Agent.overStdio(cli.home), Agent.overStdio(cli.home)]);
    for (const agent of agents) {
      expect((await agent.client.listTools()).tools.length).toBeGreaterThan(45);
      await agent.client.close();
    }
    expect(await cli.json('status')).toMatchObject({ running: true });
  });

  test('lists the toolsets in its help', async () => {
    const help = await cli.ok('mcp', '--help');
    expect(help).toMatch(/Toolsets:\n\s+default .*\n\s+core .*workspace_create/);
  });

  test('answers a line that is no message with an error, and goes on', async () => {
    const call = JSON.stringify({ jsonrpc: '2.0', id: 7, method: 'ping' });
    const { stdout, code } = await cli.run(['mcp'], { input: `not json\n${call}\n` });
    const answers = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { id: unknown });
    expect(answers).toContainEqual(
      expect.objectContaining({ id: null, error: expect.objectContaining({ code: -32700 }) }),
    );
    expect(answers).toContainEqual(expect.objectContaining({ id: 7, result: {} }));
    expect(code).toBe(0);
  });
});

test('a port that is taken is said at once, and not waited for', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const other = await CliHome.make({ listen: { port } });
  try {
    const result = await other.run(['mcp'], { input: '' });
    expect(result.stderr).toContain(`:${port} is taken by another program`);
  } finally {
    server.close();
    await other.remove();
  }
}, 50_000);

describe('coppice mcp install', () => {
  const install = async (client: string, ...options: string[]) => {
    const result = await cli.run(['mcp', 'install', client, ...options], { env: { HOME: cli.directory } });
    expect(result, result.stderr).toMatchObject({ code: 0 });
    return result.stdout;
  };
  const server = {
    command: expect.stringMatching(/bin\/coppice$/),
    args: ['mcp'],
    env: { COPPICE_HOME: expect.any(String) },
  };

  test('tells the client which daemon this command would have reached', async () => {
    const env = {
      HOME: cli.directory,
      COPPICE_URL: 'https://far.example:8443',
      COPPICE_TOKEN: 'cpt_0123456789abcdef',
    };
    const { stdout } = await cli.run(['mcp', 'install', 'cursor'], { env });
    const { mcpServers } = JSON.parse(stdout.slice(stdout.indexOf('{'))) as {
      mcpServers: { coppice: unknown };
    };
    const { COPPICE_URL, COPPICE_TOKEN } = env;
    expect(mcpServers.coppice).toMatchObject({ env: { COPPICE_URL, COPPICE_TOKEN } });
  });

  test.each([
    ['claude-code', '.mcp.json', 'mcpServers', server],
    ['claude-desktop', '.config/Claude/claude_desktop_config.json', 'mcpServers', server],
    ['cursor', '.cursor/mcp.json', 'mcpServers', server],
    ['vscode', '.vscode/mcp.json', 'servers', { type: 'stdio', ...server }],
  ])('writes the configuration of %s next to what is there', async (client, file, key, entry) => {
    const path = join(cli.directory, file);
    await mkdir(join(path, '..'), { recursive: true });
    await writeFile(path, JSON.stringify({ other: 1, [key]: { mine: { command: 'x' } } }));
    expect(await install(client)).toContain(path);
    expect(JSON.parse(await readFile(path, 'utf8'))).toEqual({ other: 1, [key]: { mine: { command: 'x' } } });
    await install(client, '--write');
    await install(client, '--write');
    expect(JSON.parse(await readFile(path, 'utf8'))).toEqual({
      other: 1,
      [key]: { mine: { command: 'x' }, coppice: entry },
    });
  });

  test('writes the table of codex once, and leaves the others alone', async () => {
    const path = join(cli.directory, '.codex/config.toml');
    await mkdir(join(path, '..'), { recursive: true });
    await writeFile(path, 'model = "x"\n\n[mcp_servers.other]\ncommand = "y"\n');
    await install('codex', '--write', '--toolsets', 'core');
    await install(
      'codex',
      '--write',
      '--toolsets',
      'core,git',
      '--tools',
      'set_env',
      '--read-only',
      '--session',
      'ann',
    );
    const text = await readFile(path, 'utf8');
    expect(text).toContain('model = "x"\n\n[mcp_servers.other]\ncommand = "y"\n');
    expect(text.match(/\[mcp_servers\.coppice\]/g)).toHaveLength(1);
    expect(text).toContain(
      'args = ["mcp","--toolsets","core,git","--tools","set_env","--read-only","--session","ann"]',
    );
  });

  test('keeps the file as it was beside the new one, its mode, and a link to it', async () => {
    const real = join(cli.directory, 'dotfiles/cursor.json');
    const path = join(cli.directory, '.cursor/mcp.json');
    await rm(path, { force: true });
    for (const file of [real, path]) await mkdir(join(file, '..'), { recursive: true });
    const mine = '{ "mine":   true }';
    await writeFile(real, mine, { mode: 0o640 });
    await symlink(real, path);
    expect(await install('cursor', '--write')).toContain(`${real}.before-coppice`);
    expect((await lstat(path)).isSymbolicLink()).toBe(true);
    expect((await lstat(real)).mode & 0o777).toBe(0o640);
    expect(JSON.parse(await readFile(real, 'utf8'))).toMatchObject({
      mine: true,
      mcpServers: { coppice: {} },
    });
    expect(await readFile(`${real}.before-coppice`, 'utf8')).toBe(mine);
    // Nothing changes: the copy of the first time is not overwritten.
    await install('cursor', '--write');
    expect(await readFile(`${real}.before-coppice`, 'utf8')).toBe(mine);
    await rm(path);
  });

  test.each([
    'mcp_servers = { coppice = { command = "x" } }\n',
    '[mcp_servers."coppice"]\ncommand = "x"\n',
    'mcp_servers.coppice.command = "x"\n',
  ])('refuses tables of codex that it could only double: %s', async (text) => {
    const path = join(cli.directory, '.codex/config.toml');
    await mkdir(join(path, '..'), { recursive: true });
    await writeFile(path, text);
    const result = await cli.run(['mcp', 'install', 'codex', '--write'], { env: { HOME: cli.directory } });
    expect(result).toMatchObject({ code: 2, stderr: expect.stringContaining('left as it is') });
    expect(await readFile(path, 'utf8')).toBe(text);
    await rm(path);
  });

  test('refuses a file that it cannot read, and writes nothing', async () => {
    const path = join(cli.directory, '.cursor/mcp.json');
    await mkdir(join(path, '..'), { recursive: true });
    await writeFile(path, '// mine\n{}');
    const result = await cli.run(['mcp', 'install', 'cursor', '--write'], { env: { HOME: cli.directory } });
    expect(result).toMatchObject({ code: 2, stderr: expect.stringContaining('left as it is') });
    expect(await readFile(path, 'utf8')).toBe('// mine\n{}');
    expect(await cli.run(['mcp', 'install', 'emacs'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('claude-code'),
    });
  });
});
