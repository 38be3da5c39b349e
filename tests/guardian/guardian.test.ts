import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Intervention } from '@coppice/protocol';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const program = join(import.meta.dirname, '../../packages/cli/src/main.ts');
const rules = [
  { name: 'loops', when: { kind: 'loop', times: 3 }, action: 'remind', message: 'You repeat yourself.' },
  { name: 'wipes', when: { kind: 'forbidden_command', commands: ['rm -rf /'] }, action: 'stop' },
  { name: 'secrets', when: { kind: 'forbidden_path', paths: ['secrets/**'] }, action: 'rewind' },
];

describe('a run that is watched', () => {
  let daemon: RunningDaemon;

  beforeAll(async () => {
    daemon = await RunningDaemon.start({
      config: { run_health: { interval_s: 0.5, cooldown_s: 0, restarts_per_hour: 2, stuck_s: 3600 } },
      prepare: (home) => writeFile(join(home, 'guardian.json'), JSON.stringify({ rules })),
    });
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  /** An agent that says its token and waits; what it finds on its disk it leaves. */
  const script = 'echo $COPPICE_RUN_TOKEN; test -e /workspace/state || echo 1 > /workspace/state; sleep 1000';

  async function begin(name: string, more: object = {}) {
    const { runs } = daemon.client;
    await runs.start({ name, task: `the task of ${name}`, command: script, ...more });
    let token = '';
    await eventually('the agent is at work', async () => {
      const said = (await runs.listEvents(name)).events.filter((event) => event.type === 'agent.output');
      token = /cpt_[A-Za-z0-9_-]+/.exec(said.map(({ data }) => data.text.text).join(''))?.[0] ?? '';
      return token !== '';
    });
    const report = async (type: string, data: object) => {
      const response = await fetch(`${daemon.url}/v1/run/events`, {
        method: 'POST',
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        body: JSON.stringify({ type, data }),
      });
      expect(response.status, await response.text()).toBeLessThan(300);
    };
    const sandbox = daemon.client.sandboxes.at((await runs.get(name)).sandbox_id!);
    return { report, sandbox };
  }
  const tool = (input: string) => ({ call_id: '1', tool: 'bash', kind: 'execute', title: 'bash', input });
  const edit = (path: string) => ({ path, change: 'modified', added: 1, removed: 0, diff: '' });
  const done = async (run: string, count: number): Promise<Intervention[]> => {
    let found: Intervention[] = [];
    await eventually('the guardian has intervened', async () => {
      found = await daemon.client.guardian.interventions(run);
      return found.length >= count && found.every(({ state }) => state !== 'begun');
    });
    return found;
  };

  test('is reminded when it loops, once, and it is on record who decided', async () => {
    const { report } = await begin('loops');
    for (let n = 0; n < 3; n += 1) await report('agent.tool_use', tool('ls'));
    const [one, ...others] = await done('loops', 1);
    expect(others).toEqual([]);
    expect(one).toMatchObject({ kind: 'remind', rule: 'loops', authority: 'guardian', state: 'done' });
    expect(one!.before).toMatchObject({ state: 'running', paused: false });
    const [message] = await daemon.client.runs.messages('loops');
    expect(message).toMatchObject({
      kind: 'nudge',
      text: '[GUARDIAN] You repeat yourself.',
      from: 'guardian',
    });
    const types = (await daemon.client.runs.listEvents('loops')).events.map(({ type }) => type);
    expect(types.filter((type) => type === 'guardian.intervened')).toHaveLength(1);
    await daemon.restart();
    await report('agent.progress', { message: 'x', percent: null }).catch(() => undefined);
    expect(await daemon.client.guardian.interventions('loops')).toHaveLength(1);
    await daemon.client.runs.stop('loops');
  });

  test('is stopped by a command that hides behind a long text', async () => {
    const { report } = await begin('wipes');
    await report('agent.tool_use', tool(`echo ${'x'.repeat(20_000)}; rm -rf /`));
    const [one] = await done('wipes', 1);
    expect(one).toMatchObject({ kind: 'stop', rule: 'wipes', detail: 'it uses rm -rf /' });
    expect(await daemon.client.runs.wait('wipes')).toMatchObject({ outcome: 'cancelled' });
  });

  test('goes back to the step before, and the revert brings what was there really back', async () => {
    const { runs, guardian } = daemon.client;
    const { report, sandbox } = await begin('rewound');
    const state = async () => (await sandbox.exec('cat /workspace/state')).stdout.trim();
    await runs.takeStep('rewound', { title: 'good' });
    await sandbox.exec('echo 2 > /workspace/state');
    await report('agent.file_edited', edit('secrets/key'));
    const [one] = await done('rewound', 1);
    expect(one).toMatchObject({ kind: 'rewind', rule: 'secrets', state: 'done' });
    await eventually('the files are as in the step', async () => (await state().catch(() => '')) === '1');
    await eventually('it works again', async () => (await runs.get('rewound')).state === 'running');
    const reverted = await guardian.revert(one!.id);
    expect(reverted).toMatchObject({ state: 'reverted', reverted_by: 'home' });
    await eventually('the files are as before', async () => (await state().catch(() => '')) === '2');
    await expect(guardian.revert(one!.id)).rejects.toMatchObject({ code: 'wrong_state' });
    await eventually('it works again', async () => (await runs.get('rewound')).state === 'running');
    await runs.stop('rewound');
  });

  test('is intervened in by people under the name of their token, and by nobody else', async () => {
    const { guardian, tokens, runs } = daemon.client;
    await begin('people');
    const told = await guardian.intervene('people', {
      kind: 'constrain',
      message: 'Only docs.',
      reason: 'review',
    });
    expect(told).toMatchObject({ authority: 'home', rule: 'person', state: 'done', detail: 'review' });
    expect((await runs.messages('people')).at(-1)).toMatchObject({ kind: 'constraint' });
    expect((await guardian.revert(told.id)).state).toBe('reverted');
    const body = JSON.stringify({ kind: 'stop', reason: 'x', authority: 'root' });
    const { secret } = await tokens.create({ name: 'looking', scope: 'admin', role: 'read' });
    for (const [token, status] of [
      [daemon.token, 400],
      [secret, 403],
    ] as const) {
      const answer = await fetch(`${daemon.url}/v1/runs/people/interventions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        body,
      });
      expect(answer.status).toBe(status);
    }
    expect(await guardian.judge('people')).toMatchObject({ status: 'unavailable', score: null });
    await runs.stop('people');
  });

  test('that is on record shows what the guardian would have done, and nothing is done', async () => {
    const { guardian, runs } = daemon.client;
    const { report } = await begin('recorded');
    for (const input of ['make', 'make', 'cat /etc/shadow']) await report('agent.tool_use', tool(input));
    await runs.stop('recorded');
    await runs.wait('recorded');
    const given = [
      { name: 'shadow', when: { kind: 'forbidden_command', commands: ['/etc/shadow'] }, action: 'stop' },
      { name: 'twice', when: { kind: 'loop', times: 2 }, action: 'refocus' },
    ] as const;
    const { findings } = await guardian.dryRun('recorded', {
      rules: given.map((each) => structuredClone(each)) as never,
    });
    expect(findings.map(({ rule, would }) => [rule, would])).toEqual([
      ['twice', 'refocus'],
      ['shadow', 'stop'],
    ]);
    expect(await guardian.interventions('recorded')).toEqual([]);
    const env = { ...process.env, COPPICE_HOME: daemon.home };
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [program, 'guardian', 'dry-run', 'recorded'],
      { env },
    );
    expect(stdout).toContain('Nothing in');
  });

  test('is seen beside others that do the same or edit the same files', async () => {
    const { guardian, runs } = daemon.client;
    const both = [];
    for (const name of ['twin-1', 'twin-2'])
      both.push(
        await begin(name, {
          task: 'Same  task',
          project: 'default',
          labels: { 'coppice.priority': name.at(-1)! },
        }),
      );
    for (const { report } of both) await report('agent.file_edited', edit('src/same.ts'));
    const ids = [(await runs.get('twin-1')).id, (await runs.get('twin-2')).id].sort();
    await eventually('both are seen', async () => (await guardian.conductor()).conflicts.length === 1);
    expect(await guardian.conductor()).toMatchObject({
      runs: [
        { name: 'twin-2', priority: 2 },
        { name: 'twin-1', priority: 1 },
      ],
      duplicates: [{ runs: ids, why: 'both have the same task' }],
      conflicts: [{ runs: ids, files: ['src/same.ts'] }],
    });
    for (const name of ['twin-1', 'twin-2']) await runs.stop(name);
  });

  test('whose process is killed goes on from its last step, until its restarts are used up', async () => {
    const { guardian, runs } = daemon.client;
    const { sandbox } = await begin('killed');
    await sandbox.exec('echo 3 > /workspace/state');
    await runs.takeStep('killed', { title: 'three' });
    // By a pattern that does not match the command line that it stands in.
    const killAgent = () =>
      sandbox.exec("kill -9 $(ps -eo pid,args | grep '[s]leep 1000' | sed 's/^ *\\([0-9]*\\) .*/\\1/')");
    const restarts = async () => (await guardian.health()).find(({ name }) => name === 'killed')?.restarts;
    for (const n of [1, 2]) {
      await eventually(
        'it is at work',
        async () => (await runs.get('killed')).state === 'running' && (await killAgent()).exit_code === 0,
      );
      await eventually('it was restarted', async () => (await restarts()) === n);
      if (n === 1) await daemon.restart();
    }
    await eventually('it works again', async () => (await runs.get('killed')).state === 'running');
    expect((await sandbox.exec('cat /workspace/state')).stdout.trim()).toBe('3');
    await eventually('it is killed once more', async () => (await killAgent()).exit_code === 0);
    await eventually('a person is asked for', async () =>
      (await runs.listEvents('killed')).events.some(({ type }) => type === 'health.escalated'),
    );
    expect((await runs.get('killed')).state).toBe('failed');
  });

  test('in quarantine is cut off and frozen, with evidence, until a person lets it out with a reason', async () => {
    const { guardian, runs } = daemon.client;
    const network = { allow: ['*.example.com', '198.51.100.7'], deny: ['ads.example.com'], ask: true };
    const { sandbox } = await begin('suspect', { network });
    const before = (await sandbox.inspect()).network;
    expect(before).toMatchObject(network);
    const held = await guardian.quarantine('suspect', 'it talks to strangers');
    expect(held.quarantine).toMatchObject({ reason: 'it talks to strangers', by: 'home' });
    expect(existsSync(held.quarantine!.evidence!)).toBe(true);
    expect((await sandbox.inspect()).network).toMatchObject({ allow: [], ask: false, allow_internet: false });
    // Where memory cannot be kept, freezing would lose it: the run is stopped instead.
    const keepsMemory = (await runs.get('suspect')).paused;
    if (!keepsMemory) expect(await runs.wait('suspect')).toMatchObject({ outcome: 'cancelled' });
    await expect(guardian.clear('suspect', ' ')).rejects.toMatchObject({ code: 'invalid_argument' });
    await daemon.restart();
    expect((await guardian.health()).find(({ name }) => name === 'suspect')?.quarantine).not.toBeNull();
    expect(await guardian.clear('suspect', 'it was a test')).toMatchObject({ quarantine: null });
    // All of it is back, what was denied and asked about included.
    expect((await sandbox.inspect()).network).toEqual(before);
    expect(await runs.get('suspect')).toMatchObject({ paused: false });
    if (keepsMemory) await runs.stop('suspect');
  });
});
