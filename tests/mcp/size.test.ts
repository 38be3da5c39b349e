import { RunningDaemon } from '@coppice/testkit';
import { countTokens } from 'gpt-tokenizer';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { estimateTokens } from '../../packages/daemon/src/text/estimate-tokens.ts';
import { Agent, type Answer, textOf } from './agent.ts';

/** The list of tools as a model gets it, by the tokenizer of one of them. */
const tokensOf = (value: unknown): number => countTokens(JSON.stringify(value));

/** Tokenizers differ: what is held to 8,000 by our estimate may be some more for one of them. */
const aboutEightThousand = 10_000;

let daemon: RunningDaemon;
let agent: Agent;

beforeAll(async () => {
  daemon = await RunningDaemon.start();
  agent = await Agent.overHttp(daemon, { select: {} });
  await agent.ok('workspace_create', { name: 'box' });
});
afterAll(async () => {
  await agent?.client.close();
  await daemon?.[Symbol.asyncDispose]();
});

interface Property {
  readonly description?: string;
  readonly properties?: Record<string, Property>;
  readonly items?: Property;
}

const undescribed = (of: Property, path: string): string[] =>
  Object.entries(of.properties ?? {}).flatMap(([name, property]) => [
    ...(property.description === undefined ? [`${path}.${name}`] : []),
    ...undescribed(property, `${path}.${name}`),
    ...undescribed(property.items ?? {}, `${path}.${name}`),
  ]);

describe('the list of tools', () => {
  const offered = async (select: Record<string, string>, headers: Record<string, string> = {}) => {
    await using some = await Agent.overHttp(daemon, { select, headers });
    return (await some.client.listTools()).tools;
  };
  const names = (tools: readonly { name: string }[]) => tools.map(({ name }) => name).sort();

  test('costs less than 4,000 tokens where nothing is asked for, and leads to no tool that is not in it', async () => {
    const listed = await agent.client.listTools();
    expect(listed.tools.length).toBeGreaterThanOrEqual(14);
    expect(listed.tools.length).toBeLessThanOrEqual(18);
    expect(tokensOf({ tools: listed.tools })).toBeLessThan(4_000);
    for (const { name, description } of listed.tools) expect(description, name).not.toContain('Not offered');
    expect(agent.client.getInstructions()).not.toContain('Not offered');
  });

  test('describes every parameter of every tool', async () => {
    const tools = await offered({ toolsets: 'all' });
    expect(tools.length).toBeGreaterThan(50);
    expect(tools.flatMap((tool) => undescribed(tool.inputSchema as Property, tool.name))).toEqual([]);
  });

  test('is chosen by toolsets, by single tools, and for reading only', async () => {
    const git = await offered({ toolsets: 'core,git' });
    expect(names(git)).toEqual(expect.arrayContaining(['exec', 'git_push', 'workspace_merge']));
    expect(names(git)).not.toContain('vault_read');
    expect(names(await offered({ tools: 'exec,image_list' }))).toEqual(['exec', 'image_list']);
    expect(names(await offered({ toolsets: 'core', tools: 'set_env' }))).toHaveLength(9);
    const reading = await offered({ toolsets: 'all', read_only: 'true' });
    expect(names(reading)).toEqual(expect.arrayContaining(['file_diff', 'file_read', 'workspace_list']));
    for (const { name, annotations } of reading) expect(annotations?.readOnlyHint, name).toBe(true);
  });

  test('is chosen by headers as by the query, and a tool that is not chosen cannot be called', async () => {
    const headers = { 'x-mcp-toolsets': 'files,snapshots', 'x-mcp-readonly': 'true', 'x-mcp-tools': 'exec' };
    const byHeader = await offered({}, headers);
    expect(byHeader).toEqual(
      await offered({ toolsets: 'files,snapshots', read_only: 'true', tools: 'exec' }),
    );
    expect(names(byHeader)).not.toContain('exec');
    await using reader = await Agent.overHttp(daemon, { select: {}, headers });
    await expect(reader.call('exec', { workspace_id: 'box', command: 'true' })).rejects.toThrow(/no tool/);
  });

  test('is chosen by options of coppice mcp', async () => {
    await using some = await Agent.overStdio(daemon.home, ['--toolsets', 'all', '--read-only']);
    expect(names((await some.client.listTools()).tools)).toEqual(
      names(await offered({ toolsets: 'all', read_only: 'true' })),
    );
  });
});

describe('an answer', () => {
  const box = { workspace_id: 'box' };
  const cost = async (name: string, args: Answer): Promise<[number, Answer]> => {
    const result = await agent.call(name, args);
    expect(result.isError ?? false, textOf(result)).toBe(false);
    const tokens = Math.max(countTokens(textOf(result)), tokensOf(result.structuredContent));
    return [tokens, result.structuredContent as Answer];
  };

  test.each([
    ['lines of numbers', 'seq 200000'],
    ['long lines of letters', 'for i in 1 2 3; do head -c 300000 /dev/zero | tr "\\\\0" x; echo; done'],
    ['random text', 'tr -dc A-Za-z0-9+/ < /dev/urandom | head -c 200000'],
    ['other scripts', 'yes "日本語のテキスト und Grüße" | head -n 20000'],
    ['both outputs', 'seq 100000; seq 100000 >&2'],
    ['bytes', 'head -c 200000 /dev/urandom'],
  ])(
    'of a command that writes %s has the start and the end, and costs about 8,000 tokens',
    async (kind, command) => {
      const [tokens, answer] = await cost('exec', { ...box, command });
      expect(tokens).toBeLessThan(aboutEightThousand);
      expect(answer).toMatchObject({ truncated: true, stdout_file: expect.any(String) });
      if (kind === 'lines of numbers' || kind === 'both outputs') {
        expect(answer.stdout).toMatch(/^1\n2\n3\n/);
        expect(answer.stdout).toMatch(/\n[12]00000\n$/);
        expect(answer.stdout).toMatch(
          /bytes are left out here; read on with file_read path=\S+ offset=\d+\]/,
        );
      }
      const whole = await agent.ok<{ content: string }>('file_read', { ...box, path: answer.stdout_file });
      expect(whole.content.length).toBeGreaterThan(1000);
    },
  );

  test('of a job, a file and a directory costs about 8,000 tokens, and says where to read on', async () => {
    const { job_id } = await agent.ok<{ job_id: number }>('exec_background', {
      ...box,
      command: 'seq 100000',
    });
    const [jobTokens, job] = await cost('exec_poll', { ...box, job_id, wait_secs: 60 });
    expect(jobTokens).toBeLessThan(aboutEightThousand);
    expect(job.stdout).toMatch(/^1\n2\n.*left out here; read all of it in parts.*\n100000\n$/s);

    await agent.ok('exec', {
      ...box,
      command: 'seq 100000 > numbers; mkdir many; for n in $(seq 1200); do : > many/$n; done',
    });
    const [fileTokens, file] = await cost('file_read', { ...box, path: 'numbers' });
    expect(fileTokens).toBeLessThan(aboutEightThousand);
    expect(file).toMatchObject({ truncated: true, next_offset: expect.any(Number) });
    const rest = await agent.ok<{ content: string }>('file_read', {
      ...box,
      path: 'numbers',
      offset: file.next_offset,
    });
    const next = Number((file.content as string).trimEnd().split('\n').at(-1));
    expect(`${file.content}${rest.content}`).toContain(`\n${next + 1}\n`);

    const [listTokens, list] = await cost('file_list', { ...box, path: 'many' });
    expect(listTokens).toBeLessThan(aboutEightThousand);
    expect(list.shortened).toMatch(/^entries: the first \d+ of 1000\. /);
    // Who says how much gets that much.
    expect(
      (await agent.ok<{ entries: Answer[] }>('file_list', { ...box, path: 'many', limit: 500 })).entries,
    ).toHaveLength(500);
  });

  test('takes what could mean nothing else: numbers as text, null for what is left out, one name for a list of names', async () => {
    const command = { ...box, command: 'echo hi' };
    expect(
      await agent.ok('exec', { ...command, timeout_secs: '10', workdir: null, env: null }),
    ).toMatchObject({
      stdout: 'hi\n',
    });
    expect(await agent.ok('snapshot_create', { ...box, name: 5, include_memory: 'false' })).toMatchObject({
      name: '5',
      has_memory: false,
    });
    await using all = await Agent.overHttp(daemon, { select: { toolsets: 'all' } });
    expect(await all.ok('exec_parallel', { workspace_ids: 'box', commands: 'true' })).toMatchObject({
      summary: { succeeded: 1 },
    });
    expect(await all.ok('exec_parallel', { workspace_ids: '["box"]', commands: ['true'] })).toMatchObject({
      summary: { succeeded: 1 },
    });
    // Null removes a variable: it is no value that was left out.
    await all.ok('set_env', { ...box, vars: { A: 'b', PORT: 8080 } });
    expect(await all.ok('set_env', { ...box, vars: { A: null } })).toMatchObject({ names: ['PORT'] });
    // What could mean two things is refused, and named.
    expect(await agent.refused('exec', { ...command, timeout_secs: 'ten' })).toContain('timeout_secs');
    expect(await agent.refused('exec', { ...box, command: null })).toContain('command');
    expect(await agent.refused('snapshot_create', { ...box, name: 'x', include_memory: 'yes' })).toContain(
      'include_memory',
    );
  });
});

describe('files of workspaces', () => {
  test('are compared and merged, conflicts are listed and settled, and a merge is undone', async () => {
    await agent.ok('workspace_create', { name: 'left' });
    await agent.ok('exec', { workspace_id: 'left', command: 'echo one > shared; echo 1 > numbers' });
    await agent.ok('snapshot_create', { workspace_id: 'left', name: 'start' });
    // Without a snapshot a fork grows from what is there now.
    expect(await agent.ok('workspace_fork', { workspace_id: 'left', new_name: 'right' })).toMatchObject({
      forked_from: { source_workspace_name: 'left' },
    });
    await agent.ok('exec', { workspace_id: 'right', command: 'echo two > shared; echo new > added' });
    const sides = { from: 'left', to: 'right', path: '/workspace' };
    expect(await agent.ok('file_diff', sides)).toMatchObject({ summary: { added: 1, modified: 1 } });
    expect(await agent.ok('file_diff', { ...sides, patch: true })).toMatchObject({
      patch: expect.stringMatching(/-one\n\+two\n/),
    });
    expect(await agent.ok('file_diff', { ...sides, from: 'left:start', path: 'added' })).toMatchObject({
      changes: [{ path: '/workspace/added', change: 'added' }],
    });
    await agent.ok('exec', { workspace_id: 'left', command: 'echo three > shared' });
    const merge = { from: 'right', into: 'left' };
    expect(await agent.ok('file_merge', { ...merge, dry_run: true })).toMatchObject({
      applied: false,
      conflicts: [{ path: '/workspace/shared', ours: 'modified', theirs: 'modified' }],
    });
    const merged = await agent.ok<{ undo_snapshot_id: string }>('file_merge', { ...merge, prefer: 'theirs' });
    expect(merged).toMatchObject({ applied: true });
    const shared = { workspace_id: 'left', path: 'shared' };
    expect(await agent.ok('file_read', shared)).toMatchObject({ content: 'two\n' });
    await agent.ok('snapshot_restore', { workspace_id: 'left', snapshot_name: merged.undo_snapshot_id });
    expect(await agent.ok('file_read', shared)).toMatchObject({ content: 'three\n' });
    expect(await agent.refused('file_merge', { from: 'left', into: 'left' })).toContain('the same workspace');
    await using other = await Agent.overHttp(daemon, { select: {}, session: 'somebody-else' });
    expect(await other.refused('file_diff', sides)).toMatch(/^forbidden: /);
    expect(await other.refused('file_merge', merge)).toMatch(/^forbidden: /);
  });

  test('start from the image and on the driver that are chosen among those that are listed', async () => {
    await using all = await Agent.overHttp(daemon, { select: { toolsets: 'all' } });
    const listed = await all.ok<{ images: { name: string }[]; drivers: { name: string }[] }>('image_list');
    expect(listed.drivers.map(({ name }) => name).sort()).toEqual(['container', 'gvisor']);
    const [image] = listed.images;
    await agent.ok('workspace_create', { name: 'chosen', base_image: image!.name, driver: 'container' });
    expect(await all.ok('workspace_info', { workspace_id: 'chosen' })).toMatchObject({
      base_image: image!.name,
      driver: 'container',
    });
    expect(await agent.refused('workspace_create', { driver: 'vmware' })).toContain('driver');
  });
});

test('tokens are estimated within bounds, without the vocabulary of any model', () => {
  const samples = {
    prose: 'A sandbox outlives the daemon: killing or upgrading the daemon leaves processes running. '.repeat(
      20,
    ),
    code: 'export const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);\n'.repeat(
      20,
    ),
    json: JSON.stringify(
      Array.from({ length: 50 }, (_, id) => ({ id, name: `file-${id}.txt`, size: id * 977 })),
    ),
    listing: '-rw-r--r-- 1 root root  4096 Nov 18 10:22 package-lock.json\n'.repeat(20),
    numbers: Array.from({ length: 1000 }, (_, n) => n * 37).join('\n'),
    base64: Buffer.from(Array.from({ length: 2000 }, (_, n) => (n * n * 31 + n * 7) % 256)).toString(
      'base64',
    ),
    hex: Buffer.from(Array.from({ length: 2000 }, (_, n) => (n * n * 31 + n * 7) % 256)).toString('hex'),
    japanese: 'サンドボックスはデーモンより長く生きる。'.repeat(20),
  };
  for (const [name, text] of Object.entries(samples)) {
    const ratio = estimateTokens(text) / countTokens(text);
    expect(ratio, name).toBeGreaterThan(0.75);
    expect(ratio, name).toBeLessThan(2);
  }
});
