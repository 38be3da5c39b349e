import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const program = join(
  import.meta.dirname,
  'inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js',
);

describe('the inspector', () => {
  let daemon: RunningDaemon;
  let home: string;

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    home = await mkdtemp(join(tmpdir(), 'coppice-inspector-'));
  });
  afterAll(async () => {
    await rm(home, { recursive: true, force: true });
    await daemon?.[Symbol.asyncDispose]();
  });

  const stdio = () => [
    process.execPath,
    join(root, 'packages/cli/src/main.ts'),
    'mcp',
    '-e',
    `COPPICE_HOME=${daemon.home}`,
  ];
  const http = () => [
    new URL('/mcp', daemon.url).href,
    '--transport',
    'http',
    '--header',
    `Authorization: Bearer ${daemon.token}`,
  ];
  const inspect = async <T>(target: readonly string[], method: string, ...args: string[]): Promise<T> => {
    const words = [program, '--cli', ...target, '--method', method, ...args];
    const { stdout } = await run(process.execPath, words, {
      cwd: home,
      env: { PATH: process.env.PATH, HOME: home, COPPICE_HOME: daemon.home },
      maxBuffer: 1 << 24,
    });
    return JSON.parse(stdout) as T;
  };

  test.each([
    ['stdio', stdio],
    ['http', http],
  ])('lists and calls tools, reads resources and gets prompts over %s', async (transport, target) => {
    const { tools } = await inspect<{ tools: { name: string }[] }>(target(), 'tools/list');
    expect(tools.map((tool) => tool.name)).toContain('workspace_create');
    const call = (tool: string, ...args: string[]) =>
      inspect(target(), 'tools/call', '--tool-name', tool, ...args.flatMap((arg) => ['--tool-arg', arg]));
    expect(await call('workspace_create', `name=${transport}`)).toMatchObject({
      structuredContent: { name: transport, state: 'running' },
    });
    expect(await call('exec', `workspace_id=${transport}`, 'command=echo $((6*7))')).toMatchObject({
      structuredContent: { exit_code: 0, stdout: '42\n' },
    });
    expect(await inspect(target(), 'resources/read', '--uri', 'coppice://lineage')).toMatchObject({
      contents: [{ text: expect.stringContaining(`sandbox ${transport}`) }],
    });
    expect(await inspect(target(), 'prompts/get', '--prompt-name', 'git-workflow')).toMatchObject({
      messages: [{ content: { text: expect.stringContaining('git_clone') } }],
    });
    await call('workspace_destroy', `workspace_id=${transport}`);
  });
});
