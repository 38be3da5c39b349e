import { request } from 'node:http';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Agent, type Answer, textOf } from './agent.ts';

interface Schema {
  readonly type?: string;
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly enum?: readonly unknown[];
}

const core = [
  'exec',
  'file_list',
  'file_read',
  'file_write',
  'snapshot_create',
  'snapshot_restore',
  'workspace_create',
  'workspace_destroy',
];

let daemon: RunningDaemon;
let agent: Agent;

beforeAll(async () => {
  daemon = await RunningDaemon.start();
  agent = await Agent.overHttp(daemon);
  await agent.ok('workspace_create', { name: 'box' });
});
afterAll(async () => {
  await agent?.client.close();
  await daemon?.[Symbol.asyncDispose]();
});

const status = (headers: Record<string, string>, body = '{}'): Promise<number | undefined> =>
  new Promise((resolve, reject) => {
    const sent = request(
      new URL('/mcp', daemon.url),
      {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          ...headers,
        },
      },
      (response) => {
        response.resume();
        resolve(response.statusCode);
      },
    );
    sent.on('error', reject);
    sent.end(body);
  });

describe('the door', () => {
  test('a call without a token, or with a wrong one, is refused', async () => {
    expect(await status({})).toBe(401);
    expect(await status({ authorization: 'Bearer wrong' })).toBe(401);
  });

  test('a Host that is not served here and an Origin of another site are refused', async () => {
    const authorization = `Bearer ${daemon.token}`;
    expect(await status({ authorization, host: 'evil.example' })).toBe(403);
    expect(await status({ authorization, origin: 'https://evil.example' })).toBe(403);
  });

  test('an unknown toolset, tool or parameter is refused', async () => {
    const refusal = (select: Record<string, string>) =>
      expect(Agent.overHttp(daemon, { select, era: 'legacy' })).rejects;
    await refusal({ toolsets: 'huge' }).toThrow(/no toolset huge.*default, core/s);
    await refusal({ tools: 'exec,fly' }).toThrow(/no tool fly.*workspace_create/s);
    await refusal({ toolsets: ',' }).toThrow(/name at least one toolset or tool/);
    await refusal({ read_only: 'perhaps' }).toThrow(/read_only must be true or false/);
    await refusal({ profile: 'core' }).toThrow(/toolsets.*not `profile`/);
  });

  test('the token of a sandbox reaches that sandbox and learns nothing of others', async () => {
    const own = await daemon.client.sandboxes.create({ name: 'scoped' });
    const { token } = own.info as unknown as { token: string };
    await using inside = await Agent.overHttp(daemon, { token });
    expect(await inside.ok('exec', { workspace_id: 'scoped', command: 'echo hi' })).toMatchObject({
      stdout: 'hi\n',
    });
    expect(await inside.ok('workspace_list')).toMatchObject({ workspaces: [{ name: 'scoped' }] });
    const other = await inside.refused('exec', { workspace_id: 'box', command: 'true' });
    expect(other).toBe(await inside.refused('exec', { workspace_id: 'there-is-none', command: 'true' }));
    const { tools } = await inside.client.listTools();
    expect(tools.map((tool) => tool.name)).not.toContain('workspace_create');
    await expect(inside.call('workspace_destroy', { workspace_id: 'scoped' })).rejects.toThrow(/no tool/);
  });
});

describe.each([
  ['http', 'legacy'],
  ['http', 'auto'],
  ['stdio', 'legacy'],
  ['stdio', 'auto'],
] as const)('over %s with a client of the %s revision', (transport, era) => {
  const connect = () =>
    transport === 'http' ? Agent.overHttp(daemon, { era }) : Agent.overStdio(daemon.home, undefined, era);

  test('tools, resources and prompts are offered, and a call is answered', async () => {
    await using client = await connect();
    const { tools } = await client.client.listTools();
    expect(tools.length).toBeGreaterThan(45);
    expect(await client.ok('exec', { workspace_id: 'box', command: 'echo $((6*7))' })).toMatchObject({
      stdout: '42\n',
    });
    expect((await client.client.listPrompts()).prompts).toHaveLength(7);
    const lineage = await client.client.readResource({ uri: 'coppice://lineage' });
    expect(lineage.contents[0]).toMatchObject({ text: expect.stringContaining('sandbox box') });
  });

  test('a cancelled call ends the command that it runs', async () => {
    await using client = await connect();
    const abort = new AbortController();
    const marker = `/workspace/${transport}-${era}`;
    const command = `touch ${marker}; exec sleep 1000`;
    const call = client.call(
      'exec',
      { workspace_id: 'box', command, timeout_secs: 600 },
      { signal: abort.signal },
    );
    const began = expect.poll(
      async () =>
        (
          await client.ok<{ exit_code: number }>('exec', {
            workspace_id: 'box',
            command: `test -e ${marker}`,
          })
        ).exit_code,
      { timeout: 60_000 },
    );
    await began.toBe(0);
    abort.abort();
    await expect(call).rejects.toThrow();
    const sleepers = async () =>
      (
        await client.ok<{ stdout: string }>('exec', {
          workspace_id: 'box',
          command: "ps -eo args | grep '[s]leep 1000' || true",
        })
      ).stdout;
    await expect.poll(sleepers, { timeout: 60_000 }).toBe('');
  });
});

describe('a cancelled call', () => {
  const names = async (): Promise<string[]> =>
    (await agent.ok<{ workspaces: { name: string }[] }>('workspace_list')).workspaces.map(({ name }) => name);
  const until = (condition: () => Promise<boolean>) => expect.poll(condition, { timeout: 60_000 }).toBe(true);
  /** Cancels a call once its command is at work in a workspace whose name begins so. */
  const cancelAtWork = async (tool: string, args: Answer, prefix: string, marker: string): Promise<void> => {
    const abort = new AbortController();
    const call = agent.call(tool, args, { signal: abort.signal });
    const ended = expect(call).rejects.toThrow();
    await until(async () => {
      const name = (await names()).find((found) => found.startsWith(prefix));
      if (name === undefined) return false;
      const seen = await agent.call('exec', {
        workspace_id: name,
        command: `test -e ${marker}`,
        workdir: '/',
      });
      return !seen.isError && (seen.structuredContent as { exit_code: number }).exit_code === 0;
    });
    abort.abort();
    await ended;
  };
  const sleep = (marker: string) => `touch ${marker}; exec sleep 1500`;

  test('of workspace_prepare leaves no half of a workspace, and its name is free', async () => {
    const prepare = { name: 'half', setup_commands: [sleep('/half')] };
    await cancelAtWork('workspace_prepare', prepare, 'half', '/half');
    await until(async () => !(await names()).includes('half'));
  });

  test('of swarm_run leaves no worker, also where they were to stay', async () => {
    await agent.ok('workspace_prepare', { name: 'hive' });
    const tasks = ['a', 'b', 'c'].map((name) => ({ name, command: sleep('/busy') }));
    const swarm = { golden_workspace: 'hive', tasks, max_parallel: 2, cleanup: false };
    await cancelAtWork('swarm_run', swarm, 'hive-fork-', '/busy');
    await until(async () => !(await names()).some((name) => name.startsWith('hive-')));
    await agent.ok('workspace_destroy', { workspace_id: 'hive' });
  });

  test('of exec_parallel ends its commands, and one of exec_poll leaves the job at work', async () => {
    const parallel = { workspace_ids: ['box'], commands: sleep('/parallel') };
    await cancelAtWork('exec_parallel', parallel, 'box', '/parallel');
    const sleepers = "ps -eo args | grep '[s]leep 1500' || true";
    await until(
      async () =>
        (await agent.ok<{ stdout: string }>('exec', { workspace_id: 'box', command: sleepers })).stdout ===
        '',
    );
    const { job_id } = await agent.ok<{ job_id: number }>('exec_background', {
      workspace_id: 'box',
      command: sleep('/job'),
    });
    const job = { workspace_id: 'box', job_id };
    await cancelAtWork('exec_poll', { ...job, wait_secs: 300 }, 'box', '/job');
    expect(await agent.ok('exec_poll', job)).toMatchObject({ running: true });
    await agent.ok('exec_kill', job);
  });
});

describe('stdio', () => {
  test('a client that goes away stops nothing', async () => {
    const first = await Agent.overStdio(daemon.home);
    const { job_id: job } = await first.ok<{ job_id: number }>('exec_background', {
      workspace_id: 'box',
      command: 'exec sleep 2000',
    });
    await first.client.close();
    expect(await agent.ok('exec_poll', { workspace_id: 'box', job_id: job })).toMatchObject({
      running: true,
    });
    expect(await agent.ok('exec_kill', { workspace_id: 'box', job_id: job })).toMatchObject({ signal: 9 });
    expect(await agent.ok('exec_poll', { workspace_id: 'box', job_id: job, wait_secs: 60 })).toMatchObject({
      running: false,
      exit_code: 137,
    });
  });

  test('the toolset core offers eight tools, and points out those that are not offered', async () => {
    await using small = await Agent.overStdio(daemon.home, ['--toolsets', 'core']);
    const { tools } = await small.client.listTools();
    expect(tools.map((tool) => tool.name).sort()).toEqual(core);
    // Words that name a tool of other toolsets say that it is none of these.
    const all = (await agent.client.listTools()).tools.map((tool) => tool.name);
    const missing = await small.refused('exec', { workspace_id: 'nope', command: 'true' });
    const texts = [
      missing,
      small.client.getInstructions() ?? '',
      ...tools.map((tool) => tool.description ?? ''),
    ];
    for (const text of texts) {
      const [, absent = ''] = /\(Not offered here: (.*)\.\)/.exec(text) ?? [];
      const named = new Set(text.match(/\b[a-z]+(_[a-z]+)+\b/g) ?? []);
      const phantoms = all.filter((name) => named.has(name) && !core.includes(name));
      expect(absent.split(', ').filter(Boolean).sort(), text).toEqual(phantoms.sort());
    }
    expect(missing).toContain('Not offered here: workspace_list.');
  });
});

describe('every tool', () => {
  test('has a title, an output schema, annotations, and says when not to use it', async () => {
    const { tools } = await agent.client.listTools();
    for (const tool of tools) {
      expect(tool, tool.name).toMatchObject({
        title: expect.any(String),
        description: expect.any(String),
        inputSchema: { type: 'object', additionalProperties: false },
        outputSchema: { type: 'object' },
        annotations: {
          readOnlyHint: expect.any(Boolean),
          destructiveHint: expect.any(Boolean),
          idempotentHint: expect.any(Boolean),
        },
      });
      expect(tool.description, tool.name).toMatch(/\b(do not|not needed)\b/i);
    }
  });

  test('is called read-only, destructive or idempotent where it is', async () => {
    const { tools } = await agent.client.listTools();
    const named = (hint: 'readOnlyHint' | 'destructiveHint' | 'idempotentHint') =>
      tools.flatMap((tool) => (tool.annotations?.[hint] === true ? [tool.name] : [])).sort();
    const looks = [
      'exec_poll file_diff file_list file_read git_diff image_inspect image_list project_info project_list',
      'run_list run_result run_show snapshot_diff snapshot_list',
      'vault_batch_read vault_list vault_read vault_search vault_stats',
      'workspace_git_status workspace_info workspace_ip workspace_list workspace_logs',
    ].flatMap((line) => line.split(' '));
    expect(named('readOnlyHint')).toEqual(looks);
    const removes = [
      'exec_kill file_download file_upload file_write image_export image_prune image_remove',
      'port_forward_remove run_interrupt snapshot_delete snapshot_restore',
      'vault_delete vault_frontmatter vault_tags workspace_destroy workspace_stop',
    ].flatMap((line) => line.split(' '));
    const anything = [
      'exec exec_background exec_parallel file_edit file_merge git_push run_rewind swarm_run',
      'vault_move vault_replace vault_write workspace_merge',
    ].flatMap((line) => line.split(' '));
    expect(named('destructiveHint')).toEqual([...removes, ...anything].sort());
    const settles = [
      'image_build image_pull image_push network_policy port_forward set_env',
      'workspace_adopt workspace_prepare workspace_start',
    ].flatMap((line) => line.split(' '));
    expect(named('idempotentHint')).toEqual([...looks, ...removes, ...settles].sort());
  });

  test('names a tool that there is in the error for a workspace that there is not', async () => {
    const { tools } = await agent.client.listTools();
    const names = tools.map((tool) => tool.name);
    /** The least that a schema takes, with a workspace that does not exist. */
    const least = (schema: Schema, key: string): unknown => {
      if (schema.anyOf) return least(schema.anyOf[0]!, key);
      if (schema.enum) return schema.enum[0];
      if (schema.type === 'array') return [least(schema.items!, key)];
      if (schema.type === 'integer' || schema.type === 'number') return 1;
      if (schema.type === 'object') return required(schema);
      return key === 'url' ? 'https://example.test/r.git' : 'there-is-none';
    };
    const required = (schema: Schema): Answer =>
      Object.fromEntries((schema.required ?? []).map((key) => [key, least(schema.properties![key]!, key)]));
    const called: string[] = [];
    for (const tool of tools) {
      const schema = tool.inputSchema as Schema;
      if (!(schema.required ?? []).some((key) => /workspace/.test(key))) continue;
      const text = await agent.refused(tool.name, required(schema));
      const next = /\nNext: (.*)/.exec(text)?.[1] ?? '';
      expect(text, tool.name).toMatch(/^not_found: /);
      expect(
        names.some((name) => next.includes(name)),
        `${tool.name}: ${text}`,
      ).toBe(true);
      called.push(tool.name);
    }
    expect(called.length).toBeGreaterThan(30);
  });

  test('refuses parameters that it does not have, and names those that it has', async () => {
    const text = await agent.refused('exec', { workspace_id: 'box', command: 'true', timeout: 3 });
    expect(text).toContain('invalid_argument');
    expect(text).toContain('timeout_secs');
  });

  test('names the next tool to call in its errors', async () => {
    expect(await agent.refused('exec', { workspace_id: 'nope', command: 'true' })).toMatch(
      /not_found.*\nNext: .*workspace_list/,
    );
    expect(await agent.refused('workspace_create', { name: 'box' })).toMatch(
      /name_taken.*\nNext: .*workspace_list/,
    );
    expect(await agent.refused('file_read', { workspace_id: 'box', path: '/none' })).toMatch(
      /not_found.*\nNext: .*file_list/,
    );
    expect(await agent.refused('snapshot_restore', { workspace_id: 'box', snapshot_name: 'none' })).toMatch(
      /Next: .*snapshot_list/,
    );
    await agent.ok('workspace_create', { name: 'stopped' });
    await agent.ok('workspace_stop', { workspace_id: 'stopped' });
    expect(await agent.refused('exec', { workspace_id: 'stopped', command: 'true' })).toMatch(
      /wrong_state.*\nNext: .*workspace_start/,
    );
    await agent.ok('workspace_destroy', { workspace_id: 'stopped' });
  });
});

describe('exec', () => {
  test('answers with a failed command as a result, not as an error', async () => {
    expect(await agent.ok('exec', { workspace_id: 'box', command: 'echo no >&2; exit 3' })).toMatchObject({
      exit_code: 3,
      stdout: '',
      stderr: 'no\n',
    });
  });

  test('that times out says so, and what to use instead', async () => {
    const text = await agent.refused('exec', {
      workspace_id: 'box',
      command: 'exec sleep 1000',
      timeout_secs: 0.5,
    });
    expect(text).toContain('timed out after 0.5 s in workspace box');
    expect(text).toContain('exec_background');
  });

  test('cuts large output with a note of where the rest is, and the rest is there', async () => {
    const answer = await agent.ok<{ stdout: string; stdout_file: string }>('exec', {
      workspace_id: 'box',
      command: 'seq 100000',
      max_output_bytes: 1000,
    });
    expect(answer.stdout).toMatch(
      /^1\n2\n3[\d\n]+\n\[TRUNCATED: 587895 of 588895 bytes are left out here; read on with file_read path=\S+ offset=500\]\n[\d\n]+100000\n$/,
    );
    const rest = await agent.ok('file_read', {
      workspace_id: 'box',
      path: answer.stdout_file,
      offset: 588_888,
    });
    expect(rest).toMatchObject({ content: '100000\n', truncated: false });
  });

  test('runs commands and jobs also where there is no /workspace, and names a workdir that is missing', async () => {
    await agent.ok('workspace_create', { name: 'bare' });
    const bare = { workspace_id: 'bare' };
    await agent.ok('exec', { ...bare, command: 'rmdir /workspace', workdir: '/' });
    expect(await agent.ok('exec', { ...bare, command: 'pwd' })).toMatchObject({
      exit_code: 0,
      stdout: '/root\n',
    });
    const { job_id } = await agent.ok<{ job_id: number }>('exec_background', {
      ...bare,
      command: 'echo job',
    });
    expect(await agent.ok('exec_poll', { ...bare, job_id, wait_secs: 60 })).toMatchObject({
      stdout: 'job\n',
    });
    expect(await agent.refused('exec', { ...bare, command: 'true', workdir: '/none' })).toContain('/none');
    await agent.ok('workspace_destroy', bare);
  });

  test('reports progress to those that ask for it', async () => {
    const messages: (string | undefined)[] = [];
    await agent.ok(
      'exec',
      { workspace_id: 'box', command: 'true' },
      { onprogress: ({ message }) => messages.push(message) },
    );
    expect(messages).toContain('running');
  });

  test('variables of set_env reach later commands, and their values no answer', async () => {
    const secret = 'a-value-that-stays-inside';
    await agent.ok('set_env', { workspace_id: 'box', vars: { MY_SECRET: secret } });
    expect(
      await agent.ok('exec', { workspace_id: 'box', command: 'env | grep ^MY_SECRET= | wc -c' }),
    ).toMatchObject({
      stdout: `${secret.length + 11}\n`,
    });
    expect(JSON.stringify(await agent.ok('workspace_info', { workspace_id: 'box' }))).not.toContain(secret);
    await agent.ok('set_env', { workspace_id: 'box', vars: { MY_SECRET: null } });
    expect(
      await agent.ok('exec', { workspace_id: 'box', command: 'env | grep ^MY_SECRET= || echo gone' }),
    ).toMatchObject({
      stdout: 'gone\n',
    });
  });

  test('runs in several workspaces at once, and one that fails does not stop the others', async () => {
    await agent.ok('workspace_create', { name: 'second' });
    const answer = await agent.ok('exec_parallel', {
      workspace_ids: ['box', 'second'],
      commands: ['echo a', 'exit 4'],
    });
    expect(answer).toMatchObject({
      results: [
        { workspace_name: 'box', exit_code: 0, stdout: 'a\n' },
        { workspace_name: 'second', exit_code: 4 },
      ],
      summary: { total: 2, succeeded: 1, failed: 1, timed_out: 0 },
    });
    await agent.ok('workspace_destroy', { workspace_id: 'second' });
  });
});

describe('exec_poll', () => {
  test('waits for what is new after a cursor, and for the end of the job without one', async () => {
    const { job_id: job } = await agent.ok<{ job_id: number }>('exec_background', {
      workspace_id: 'box',
      command: 'echo one; until test -e /tmp/go; do sleep 0.02; done; echo two >&2',
    });
    const poll = (args: Answer) =>
      agent.ok<{ cursor: number }>('exec_poll', { workspace_id: 'box', job_id: job, ...args });
    const first = await poll({ cursor: 0, wait_secs: 60 });
    expect(first).toMatchObject({ running: true, exit_code: null, stdout: 'one\n' });
    await agent.ok('file_write', { workspace_id: 'box', path: '/tmp/go', content: '' });
    expect(await poll({ cursor: first.cursor, wait_secs: 60 })).toMatchObject({
      stdout: '',
      stderr: 'two\n',
    });
    expect(await poll({ wait_secs: 60 })).toMatchObject({
      running: false,
      exit_code: 0,
      stdout: 'one\n',
      stderr: 'two\n',
    });
    const log = await agent.client.readResource({ uri: `coppice://sandbox/box/job/${job}/log` });
    expect(log.contents[0]).toMatchObject({ text: 'one\ntwo\n' });
  });
});

describe('files', () => {
  test('relative paths start at /workspace', async () => {
    expect(await agent.ok('file_write', { workspace_id: 'box', path: 'notes/a.txt', content: 'x' })).toEqual({
      path: '/workspace/notes/a.txt',
      bytes: 1,
    });
    expect(await agent.ok('file_list', { workspace_id: 'box', path: 'notes' })).toMatchObject({
      entries: [{ name: 'a.txt' }],
    });
  });

  test('binary content comes as base64 with its mime type', async () => {
    const png = Buffer.from('89504e470d0a1a0a0000000d', 'hex').toString('base64');
    await agent.ok('file_write', { workspace_id: 'box', path: 'a.png', content: png, encoding: 'base64' });
    const result = await agent.call('file_read', { workspace_id: 'box', path: 'a.png' });
    expect(result.structuredContent).toMatchObject({
      content: png,
      encoding: 'base64',
      mime_type: 'image/png',
      size_bytes: 12,
    });
    expect(result.content).toContainEqual({ type: 'image', data: png, mimeType: 'image/png' });
    const { contents } = await agent.client.readResource({
      uri: 'coppice://sandbox/box/file/workspace/a.png',
    });
    expect(contents[0]).toMatchObject({ mimeType: 'image/png', blob: png });
  });

  test('text that is cut ends at a whole character and says where to read on', async () => {
    await agent.ok('file_write', { workspace_id: 'box', path: 'u.txt', content: 'äöü' });
    const result = await agent.call('file_read', { workspace_id: 'box', path: 'u.txt', limit: 3 });
    expect(result.structuredContent).toMatchObject({
      content: 'ä',
      encoding: 'utf-8',
      next_offset: 2,
      size_bytes: 6,
      truncated: true,
    });
    expect(textOf(result)).toContain('offset=2');
  });

  test('an edit that finds nothing, or more than one place, writes nothing', async () => {
    await agent.ok('file_write', { workspace_id: 'box', path: 'e.txt', content: 'a a' });
    const edit = { workspace_id: 'box', path: 'e.txt', new_string: 'b' };
    expect(await agent.refused('file_edit', { ...edit, old_string: 'c' })).toMatch(
      /no_match.*\nNext: .*file_read/,
    );
    expect(await agent.refused('file_edit', { ...edit, old_string: 'a' })).toMatch(
      /ambiguous.*\nNext: .*replace_all/,
    );
    expect(await agent.ok('file_edit', { ...edit, old_string: 'a', replace_all: true })).toMatchObject({
      replacements: 2,
    });
  });
});

describe('prompts', () => {
  test('hold the seven patterns as steps of tools that there are, for the task that is given', async () => {
    const tools = new Set((await agent.client.listTools()).tools.map((tool) => tool.name));
    const { prompts } = await agent.client.listPrompts();
    expect(prompts.map((prompt) => prompt.name)).toEqual([
      'disposable-sandbox',
      'checkpoint-rollback',
      'parallel-hypotheses',
      'persistent-environment',
      'edit-files',
      'git-workflow',
      'snapshot-sizes',
    ]);
    for (const { name } of prompts) {
      const { messages } = await agent.client.getPrompt({ name, arguments: { task: 'sort the numbers' } });
      const content = messages[0]?.content;
      const text = content?.type === 'text' ? content.text : '';
      expect(text, name).toMatch(/sort the numbers[\s\S]*\n1\. /);
      const named = text.match(/\b(workspace|exec|file|snapshot|git)_[a-z_]+/g) ?? [];
      expect(named.length, name).toBeGreaterThan(2);
      for (const tool of named) expect(tools, name).toContain(tool);
    }
    await expect(agent.client.getPrompt({ name: 'none' })).rejects.toThrow(/disposable-sandbox/);
  });
});

describe('the shared notes', () => {
  test('are written, found, tagged, moved and deleted', async () => {
    await agent.ok('vault_write', {
      path: 'plans/today.md',
      content: '---\nstatus: open\n---\n# Plan\nbuild it\n',
    });
    await agent.ok('vault_write', { path: 'plans/today.md', content: 'and test it\n', mode: 'append' });
    expect(await agent.ok('vault_search', { query: 'TEST' })).toMatchObject({
      results: [{ path: 'plans/today.md', line: 'and test it' }],
    });
    expect(
      await agent.ok('vault_tags', { path: 'plans/today.md', action: 'add', tag: 'urgent' }),
    ).toMatchObject({ tags: ['urgent'] });
    expect(await agent.ok('vault_read', { path: 'plans/today.md', format: 'json' })).toMatchObject({
      frontmatter: { status: 'open', tags: ['urgent'] },
      content: '# Plan\nbuild it\nand test it\n',
    });
    expect(
      await agent.ok('vault_replace', { path: 'plans/today.md', search: 'it', replace: 'all' }),
    ).toMatchObject({ replacements: 2 });
    const path = 'plans/today.md';
    expect(await agent.ok('vault_search', { query: '^AND (\\w+) a', regex: true })).toMatchObject({
      results: [{ path, line_number: 7, line: 'and test all' }],
    });
    expect(
      await agent.ok('vault_replace', { path, search: '(build|test) all', replace: '$1 it', regex: true }),
    ).toMatchObject({ replacements: 2 });
    expect(await agent.refused('vault_search', { query: '(', regex: true })).toContain('invalid_argument');
    expect(await agent.refused('vault_replace', { path, search: 'x+y', replace: '', regex: true })).toContain(
      'no_match',
    );
    await agent.ok('vault_move', { path: 'plans/today.md', new_path: 'done.md' });
    expect(await agent.ok('vault_list', { recursive: true })).toMatchObject({
      entries: [{ path: 'done.md' }, { path: 'plans', is_dir: true }],
    });
    await agent.ok('vault_delete', { path: 'done.md', confirm: true });
    expect(await agent.refused('vault_read', { path: 'done.md' })).toContain('vault_list');
    expect(await agent.refused('vault_read', { path: '../token' })).toContain('outside');
  });

  test('a pattern that takes for ever, or makes too much of a note, fails alone', async () => {
    const path = 'trap.md';
    await agent.ok('vault_write', { path, content: `${'a'.repeat(5000)}!\n` });
    const trap = { search: '(a+)+$', replace: '', regex: true };
    const stuck = [
      agent.refused('vault_search', { query: trap.search, regex: true }),
      agent.refused('vault_replace', { path, ...trap }),
    ];
    // Others are served meanwhile.
    expect(await agent.ok('vault_list')).toMatchObject({ count: 2 });
    for (const said of await Promise.all(stuck)) expect(said).toMatch(/^timeout: .*\nNext: Make it simpler/);
    for (const regex of [true, false])
      expect(
        await agent.refused('vault_replace', { path, search: 'a', replace: 'b'.repeat(1_000_000), regex }),
      ).toContain('too_large');
    await agent.ok('vault_delete', { path, confirm: true });
  });
});
