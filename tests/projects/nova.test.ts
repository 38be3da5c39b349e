import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { ScriptedUpstream } from '@coppice/gateway';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';

const run = promisify(execFile);
const cli = fileURLToPath(new URL('../../packages/cli/src/main.ts', import.meta.url));
const python = fileURLToPath(new URL('../../clients/python', import.meta.url));
const answer = 'Three practices are worth a call.\nVOTE: HOLD';
const usage = { input: 1000, output: 100 };
/** 1,000 tokens at 3 dollars and 100 at 15 dollars a million. */
const callCost = 0.0045;

let daemon: RunningDaemon;
let upstream: ScriptedUpstream;
const others: ScriptedUpstream[] = [];

beforeAll(async () => {
  upstream = new ScriptedUpstream({ steps: [{ text: answer, usage }] });
  const url = await upstream.listen();
  daemon = await RunningDaemon.start({ programs: ['curl'], config: { default_image: 'with-curl' } });
  // As every image of a distribution has it.
  const maker = await daemon.client.sandboxes.create({ image: 'tiny' });
  await maker.exec(
    'echo "nameserver 192.0.2.53" > /etc/resolv.conf; echo "hosts: files dns" > /etc/nsswitch.conf',
  );
  await daemon.client.images.commit({ from: maker.id, name: 'with-curl' });
  await maker.destroy();
  const secret = 'vendor-key';
  const judges = [
    { models: ['claude-haiku-4-5'], text: 'It says something.\nVERDICT: PASS' },
    { models: ['claude-opus-4-5'], text: 'I cannot say.' },
  ];
  const upstreams: object[] = [];
  for (const [index, { models: asked, text }] of judges.entries()) {
    const judge = new ScriptedUpstream({ steps: [{ text, usage }] });
    others.push(judge);
    upstreams.push({
      name: `judge-${index}`,
      kind: 'anthropic',
      url: await judge.listen(),
      secret,
      models: asked,
    });
  }
  const models = { upstreams: [...upstreams, { name: 'vendor', kind: 'anthropic', url, secret }] };
  writeFileSync(join(daemon.home, 'models.json'), JSON.stringify(models));
  await daemon.client.secrets.set('vendor-key', 'sk-real');
});
afterAll(async () => {
  await daemon?.[Symbol.asyncDispose]();
  for (const each of [upstream, ...others]) await each?.[Symbol.asyncDispose]();
});

const env = () => ({ ...process.env, COPPICE_HOME: daemon.home, PYTHONPATH: python });

/** Runs lines of the document; `nova` is `bin/nova`. */
const shell = async (script: string): Promise<string> => {
  const nova = `nova() { '${process.execPath}' '${cli}' nova "$@"; }; set -e\n`;
  return (await run('bash', ['-c', nova + script], { env: env() })).stdout;
};

const idIn = (output: string): string => /Project ID: (prj_[0-9a-f]{8})/.exec(output)![1]!;

const ranOnce = (project: string, runs = 1): Promise<unknown> =>
  eventually('its agents have run', async () => {
    const list = await daemon.client.projects.runs(project);
    return list.filter(({ state }) => state === 'ended').length >= runs;
  });

test('example 1: a configuration is tried with a model, measured by the gateway, recommended and promoted', async () => {
  const created = await shell('nova sandbox create "DDS NYC Dentists Test"');
  const id = idIn(created);
  expect(created).toBe(
    `✓ Created sandbox project: DDS NYC Dentists Test\n  Project ID: ${id}\n  Workspace: ${daemon.home}/sandbox/projects/${id}\n`,
  );
  const deployed = await shell(`nova sandbox deploy ${id} dds_prospecting \\
  --config '{"vertical":"dentists","location":"NYC","prospect_count":100}'`);
  expect(deployed).toMatch(
    new RegExp(`^✓ Deployed agent: .*\n {2}Agent ID: sandbox_${id}_dds_prospecting_[0-9a-f]{6}\n`),
  );
  await ranOnce(id);
  const { metrics, agents } = await daemon.client.projects.get(id);
  expect(agents[0]?.last_run).toMatchObject({ exit: 'ok', summary: answer });
  expect(metrics).toMatchObject({ cost_usd: callCost, tokens: 1100 });
  expect((await daemon.client.projects.ledger(id)).map(({ source }) => source)).toEqual(['gateway']);
  await daemon.client.projects.report(id, {
    name: 'revenue',
    value: callCost * 5.5,
    source: 'evaluator:sales',
  });
  const evaluated = await shell(`nova sandbox eval ${id}`);
  expect(evaluated).toContain('STRONGLY_RECOMMEND (ROI: 450%)');
  for (const criterion of ['Positive ROI', 'Profitability', 'Active Agents', 'Sufficient Data'])
    expect(evaluated).toContain(`✓ ${criterion}`);
  await expect(shell(`nova sandbox promote ${id}`)).rejects.toMatchObject({
    stderr: expect.stringContaining(`the promotion of ${id} must be confirmed`),
  });
  const promoted = await shell(
    `echo yes | script -qec "'${process.execPath}' '${cli}' nova sandbox promote ${id}" /dev/null`,
  );
  expect(promoted).toContain('Agents migrated: 1');
  expect(await shell(`nova sandbox promote ${id} --yes`)).toContain(
    '✓ Promoted before: DDS NYC Dentists Test',
  );
  const inProduction = (await daemon.client.production.list()).filter(({ project }) => project === id);
  expect(inProduction).toMatchObject([{ type: 'dds_prospecting', token_budget: 1000, status: 'active' }]);
  expect(inProduction[0]?.id).toMatch(/^dds_prospecting_[0-9a-f]{8}$/);
  expect(await shell(`nova sandbox project ${id}`)).toContain('promoted');
});

test('example 2: of several approaches only what earns is promoted', async () => {
  const id = idIn(await shell('nova sandbox create "Content Strategy Test"'));
  await shell(`nova sandbox deploy ${id} content_creator \\
  --name "LinkedIn Daily" \\
  --config '{"platform":"linkedin","frequency":"daily"}'

nova sandbox deploy ${id} content_creator \\
  --name "Twitter Hourly" \\
  --config '{"platform":"twitter","frequency":"hourly"}'`);
  await ranOnce(id, 2);
  await daemon.client.projects.report(id, { name: 'revenue', value: 1, agent: 'LinkedIn Daily' });
  const shown = await shell(`nova sandbox project ${id}`);
  expect(shown).toMatch(/LinkedIn Daily +content_creator +active/);
  expect(shown).toMatch(/Twitter Hourly +content_creator +active +\$0\.004500 +\$0\.00 +-100%/);
  expect(await shell(`nova sandbox promote ${id} --yes`)).toMatch(
    /Agents migrated: 1\n {2}LinkedIn Daily: content_creator_/,
  );
  expect(await shell('nova sandbox list')).toMatch(new RegExp(`${id} +Content Strategy Test +promoted`));
  expect(await shell('nova sandbox status')).toContain('Projects');
});

test('example 3: a project for learning is killed without a trace', async () => {
  const id = idIn(
    await shell(`nova sandbox create "Learning AI Agents" \\
  --description "Personal project to understand agent architectures"`),
  );
  await shell(`nova sandbox deploy ${id} trend_monitor \\
  --config '{"topic":"AI","sources":["twitter","reddit"]}'`);
  expect(await shell(`nova sandbox kill ${id} --delete`)).toBe('✓ Deleted project: Learning AI Agents\n');
  expect(await shell('nova sandbox list')).not.toContain(id);
});

test('the Python of the document works as it is printed', async () => {
  const script = `
from sandbox.manager import get_sandbox

# Get sandbox manager
sandbox = get_sandbox()

# Create project
project_id = sandbox.create_project(
    name="My Experiment",
    description="Testing new approach"
)

# Deploy agent
agent_id = sandbox.deploy_agent(
    project_id=project_id,
    agent_type="dds_prospecting",
    config={"vertical": "dentists"}
)

import time
while sandbox.get_project(project_id).get_metrics()["runs"] == 0: time.sleep(0.1)
sandbox.report_metric(project_id, "revenue", 1)

# Get project
project = sandbox.get_project(project_id)
metrics = project.get_metrics()

# Evaluate
evaluation = sandbox.evaluate_project(project_id)

# Log experiment
experiment_id = sandbox.log_experiment(
    project_id=project_id,
    name="Test 2x budget",
    hypothesis="Doubling token budget will improve lead quality",
    config={"token_budget": 20000}
)

# Complete experiment
sandbox.complete_experiment(
    experiment_id=experiment_id,
    results={"lead_quality": 8.5, "cost_per_lead": 2.30},
    success=True
)

# Promote if successful
if evaluation['recommendation'] in ['RECOMMEND', 'STRONGLY_RECOMMEND']:
    result = sandbox.promote_project(project_id)
    print(f"Promoted! Migrated {result['agents_migrated']} agents")
print(metrics["total_cost"], agent_id)

from sandbox.manager import SandboxError
try:
    sandbox.deploy_agent(project_id, "dds_prospecting")
except SandboxError as error:
    print(error.code)
try:
    sandbox.complete_experiment(99999, {}, True)
except SandboxError as error:
    print(error.code)
`;
  const { stdout } = await run('python3', ['-c', script], { env: env() });
  expect(stdout).toMatch(
    /^Promoted! Migrated 1 agents\n0\.0045 sandbox_prj_[0-9a-f]{8}_dds_prospecting_[0-9a-f]{6}\nwrong_state\nnot_found\n$/,
  );
});

test('the budget of an agent is ten times that of production, and held', async () => {
  const { projects } = daemon.client;
  const { id } = await projects.create({ name: 'Thirsty' });
  const agent = await projects.deploy(id, {
    type: 'trend_monitor',
    config: { topic: 'AI', token_budget: 1000 },
  });
  await ranOnce(id);
  // The first answer was longer than was left; there is nothing for another call.
  await projects.run(id, agent.id);
  await ranOnce(id, 2);
  expect((await projects.get(id)).agents[0]?.last_run).toMatchObject({ exit: 'limit:tokens' });
  expect((await projects.get(id)).metrics.tokens).toBe(1100);
});

test('a judge decides trials through the gateway; what it takes is the project’s, and no verdict decides nothing', async () => {
  const { projects } = daemon.client;
  const { id } = await projects.create({ name: 'Judged trials' });
  const start = (model: string) =>
    projects.startExperiment(id, {
      name: model,
      type: 'scripted',
      template: 'regression',
      variants: [{ name: 'only', config: { script: 'echo an answer' } }],
      cases: [{ id: 'one', input: 'say something' }],
      evaluator: { kind: 'judge', model, brief: 'Does it say something?' },
    });
  const done = async (experiment: number, state: string) => {
    await eventually(
      `it is ${state}`,
      async () => (await projects.experiment(id, experiment)).state === state,
    );
    return projects.experiment(id, experiment);
  };
  const passed = await done((await start('claude-haiku-4-5')).id, 'done');
  expect(passed).toMatchObject({
    success: true,
    trials: [{ passed: true, reason: 'It says something.\nVERDICT: PASS' }],
  });
  const entries = await projects.ledger(id);
  expect(entries).toMatchObject([{ source: 'judge', usd: passed.trials[0]!.cost_usd }]);
  expect(await done((await start('claude-opus-4-5')).id, 'failed')).toMatchObject({
    failure: expect.stringContaining('the judge gave no verdict: I cannot say.'),
    trials: [{ passed: null }],
  });
  // Five tries with three questions each: all of them are paid.
  const { total } = await daemon.client.costs({ project: id });
  expect(total.calls).toBe(16);
  expect((await projects.get(id)).metrics.cost_usd).toBeCloseTo(total.cost_micros / 1e6, 9);
});

test('the council gives its reasons, and its cost is the project’s', async () => {
  const { projects } = daemon.client;
  const { id } = await projects.create({ name: 'Judged' });
  const { council } = await projects.evaluate(id, { council: true });
  expect(council).toHaveLength(4);
  expect(council?.[0]).toMatchObject({
    vote: 'hold',
    reasons: 'Three practices are worth a call.',
    cost_usd: callCost,
  });
  expect((await projects.get(id)).metrics.cost_usd).toBeCloseTo(4 * callCost, 9);
});

test('a council of which one does not vote gives no verdict, and what it took is paid', async () => {
  const { projects } = daemon.client;
  const { id } = await projects.create({ name: 'Undecided' });
  await expect(projects.evaluate(id, { council: true, model: 'claude-opus-4-5' })).rejects.toMatchObject({
    code: 'unavailable',
    message: expect.stringContaining('the advocate of the council did not vote: I cannot say.'),
    hint: expect.stringContaining('--model'),
  });
  const { total } = await daemon.client.costs({ project: id });
  expect(total.calls).toBe(1);
  expect(total.cost_micros).toBeGreaterThan(0);
  expect((await projects.get(id)).metrics.cost_usd).toBeCloseTo(total.cost_micros / 1e6, 9);
  // Without the council it is evaluated as ever.
  expect(await projects.evaluate(id)).toMatchObject({ recommendation: 'NOT_READY', council: null });
});
