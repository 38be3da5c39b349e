import {
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { writeConfig } from '../src/mcp/client-config-file.ts';
import { clients } from '../src/mcp/clients.ts';

const server = { command: '/opt/coppice', args: ['mcp'], env: {} };

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-config-'));
  mkdirSync(join(directory, '.codex'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const client = (name: string) => clients(directory, directory)[name]!;
const codex = () => join(directory, '.codex/config.toml');
const ours = '[mcp_servers.coppice]\ncommand = "/opt/coppice"\nargs = ["mcp"]\n';

test('a project that holds links cannot have other files written to', async () => {
  const outside = join(directory, 'bashrc');
  writeFileSync(outside, 'mine');
  writeFileSync(join(directory, '.mcp.json'), '{ "mcpServers": { "$(id)": { "command": "x" } } }');
  for (const name of ['.mcp.json.new', '.mcp.json.before-coppice'])
    symlinkSync(outside, join(directory, name));
  const backup = await writeConfig(client('claude-code'), server);
  expect(readFileSync(outside, 'utf8')).toBe('mine');
  expect(lstatSync(backup!).isFile()).toBe(true);
  expect(readFileSync(backup!, 'utf8')).toContain('$(id)');
});

test('what was there before the first time is kept when it is written again', async () => {
  const path = join(directory, '.mcp.json');
  writeFileSync(path, '{ "mcpServers": {} }');
  const first = await writeConfig(client('claude-code'), server);
  const second = await writeConfig(client('claude-code'), { ...server, args: ['mcp', '--profile', 'core'] });
  expect(readFileSync(first!, 'utf8')).toBe('{ "mcpServers": {} }');
  expect(second).not.toBe(first);
  expect(await writeConfig(client('claude-code'), { ...server, args: ['mcp', '--profile', 'core'] })).toBe(
    undefined,
  );
  expect(readdirSync(directory).filter((name) => name.endsWith('.new'))).toEqual([]);
});

describe('in TOML', () => {
  test.each([
    [
      'in the middle, with comments around it',
      `model = "o"\n\n${ours.replace('opt', 'old')}# of the next\n[mcp_servers.other]\ncommand = "b"\n`,
    ],
    ['indented', `  [mcp_servers.coppice]\n  command = "/old/coppice"\n\n[tui]\ntheme = "a"\n`],
    ['with spaces', `[ mcp_servers . coppice ]\ncommand = "/old/coppice"\n[a]\nb = 1\n`],
    [
      'with an environment',
      `${ours.replace('opt', 'old')}\n[mcp_servers.coppice.env]\nA = "b"\n\n[a]\nb = 1\n`,
    ],
  ])('a table of ours %s is replaced once, and the rest stays', async (_, before) => {
    writeFileSync(codex(), before);
    await writeConfig(client('codex'), server);
    const after = readFileSync(codex(), 'utf8');
    expect(after.match(/coppice\s*\]/g)).toHaveLength(1);
    expect(after).toContain('command = "/opt/coppice"');
    expect(after).not.toContain('/old/');
    for (const line of before.split('\n'))
      if (!/coppice|args|^A =/.test(line)) expect(after.split('\n')).toContain(line);
    expect(await writeConfig(client('codex'), server)).toBe(undefined);
  });

  test.each([
    ['has it inside of a table', '[mcp_servers]\ncoppice = { command = "x" }\n'],
    ['has it by dotted keys', '[mcp_servers]\ncoppice.command = "x"\n'],
    ['has it by dotted keys at the top', 'mcp_servers.coppice.command = "x"\n'],
    ['has all servers in one line', 'mcp_servers = { other = { command = "x" } }\n'],
    ['has it as a list', '[[mcp_servers.coppice]]\ncommand = "x"\n'],
    ['ends in the middle of a text', 'note = """\n[mcp_servers.coppice]\n'],
    ['has a table that is never closed', '[mcp_servers.other\ncommand = "x"\n'],
    ['is something else', '{ "mcpServers": {} }\n'],
  ])('a file that %s is left as it is', async (_, before) => {
    writeFileSync(codex(), before);
    await expect(writeConfig(client('codex'), server)).rejects.toMatchObject({ code: 'invalid_argument' });
    expect(readFileSync(codex(), 'utf8')).toBe(before);
    expect(readdirSync(join(directory, '.codex'))).toEqual(['config.toml']);
  });

  test('a text that looks like a table is none', async () => {
    const before = 'note = """\n[mcp_servers.coppice]\n"""\nlist = [\n  [1, 2],\n]\n';
    writeFileSync(codex(), before);
    await writeConfig(client('codex'), server);
    expect(readFileSync(codex(), 'utf8')).toBe(`${before}\n${ours}`);
  });
});
