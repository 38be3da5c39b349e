import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ProjectDetail, Run } from '@coppice/protocol';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

let daemon: RunningDaemon;
beforeAll(async () => {
  daemon = await RunningDaemon.start();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

/** A script that reports what it is told to. */
const reporting = (report: object, then = 'true'): string =>
  `echo at work; printf '%s' '${JSON.stringify(report)}' > report.json; ${then}`;

const ended = async (project: string, count = 1): Promise<ProjectDetail> => {
  await eventually(`${count} runs of ${project} end`, async () => {
    const runs = await daemon.client.projects.runs(project);
    return runs.filter(({ state, sandbox }) => state === 'ended' && sandbox === null).length >= count;
  });
  return daemon.client.projects.get(project);
};

/** The run of its agent, once it is at work. */
const working = async (project: string): Promise<Run> => {
  const list = () => daemon.client.runs.list({ project, state: 'running' });
  await eventually(`a run of ${project} works`, async () => (await list()).length === 1);
  return (await list())[0]!;
};

describe('a project', () => {
  test('runs its agent in a sandbox of its own, books what it reports with its source, and is evaluated', async () => {
    const { projects, sandboxes } = daemon.client;
    const project = await projects.create({ name: 'First try', description: 'does it run' });
    expect(project).toMatchObject({ status: 'active', metrics: { cost_usd: 0, roi: 0 } });
    expect(project.id).toMatch(/^prj_[0-9a-f]{8}$/);
    expect((await projects.evaluate(project.id)).recommendation).toBe('NOT_READY');
    const script = reporting({
      cost_usd: 2,
      revenue_usd: 11,
      metrics: { leads: 7 },
      notes: ['mornings work better'],
    });
    const agent = await projects.deploy(project.id, { type: 'scripted', name: 'Earner', config: { script } });
    expect(agent.id).toMatch(new RegExp(`^sandbox_${project.id}_scripted_[0-9a-f]{6}$`));
    expect(agent.token_budget).toBe(10_000);
    const after = await ended(project.id);
    expect(after.agents[0]?.last_run).toMatchObject({ state: 'ended', exit: 'ok', summary: 'at work' });
    expect(after.metrics).toMatchObject({ cost_usd: 2, revenue_usd: 11, profit_usd: 9, roi: 450, runs: 1 });
    expect(after.reported).toMatchObject([{ name: 'leads', value: 7, source: `agent:${agent.id}` }]);
    expect(after.notes).toMatchObject([{ text: 'mornings work better', source: `agent:${agent.id}` }]);
    const ledger = await projects.ledger(project.id);
    expect(ledger.map(({ kind, usd, source }) => [kind, usd, source])).toEqual([
      ['cost', 2, `agent:${agent.id}`],
      ['revenue', 11, `agent:${agent.id}`],
    ]);
    expect(readdirSync(project.workspace)).toEqual([`${after.agents[0]?.last_run?.id}.txt`]);
    const evaluation = await projects.evaluate(project.id);
    expect(evaluation).toMatchObject({ recommendation: 'STRONGLY_RECOMMEND', all_passed: true });
    expect(evaluation.promotable.map(({ id }) => id)).toEqual([agent.id]);
    expect(await sandboxes.list()).toEqual([]);
  });

  test('runs its agents as runs like any other: listed, watched, told, stopped, and gone with the project', async () => {
    const { projects, runs, sandboxes } = daemon.client;
    const { id } = await projects.create({ name: 'In the open' });
    const agent = await projects.deploy(id, {
      type: 'scripted',
      config: { script: 'echo "$COPPICE_RUN_ID of $COPPICE_PROJECT"; sleep 600' },
    });
    const found = await working(id);
    const inProject = async () => (await projects.runs(id))[0];
    await eventually('the project knows', async () => (await inProject())?.state === 'running');
    expect(await inProject()).toMatchObject({ id: found.id, agent: agent.id, sandbox: found.sandbox_id });
    expect(found).toMatchObject({ agent: 'command', labels: { 'coppice.agent': agent.id }, project: id });
    expect(await sandboxes.at(found.sandbox_id!).callsFor()).toEqual({
      run: found.id,
      agent: agent.id,
      project: id,
    });
    expect(await daemon.client.guardian.health()).toMatchObject([{ run_id: found.id, health: 'well' }]);
    await runs.tell(found.id, 'hurry up');
    await eventually('it spoke', async () =>
      (await runs.listEvents(found.id)).events.some(
        (event) => event.type === 'agent.output' && event.data.text.text === `${found.id} of ${id}\n`,
      ),
    );
    await runs.stop(found.id, { reason: 'seen enough' });
    expect((await ended(id)).agents[0]?.last_run).toMatchObject({
      exit: 'cancelled',
      summary: 'seen enough',
    });
    expect(await runs.list({ project: id })).toMatchObject([{ outcome: 'cancelled', sandbox_id: null }]);
    await projects.kill(id, { delete: true });
    expect(await runs.list({ project: id })).toEqual([]);
  });

  test('runs again what the machine broke, and the broken run counts neither way', async () => {
    const { projects, sandboxes } = daemon.client;
    const { id } = await projects.create({ name: 'Broken once' });
    const gone = `test -e /workspace/.agent/script && sleep 600`;
    await projects.deploy(id, { type: 'scripted', config: { script: gone } });
    const first = await working(id);
    await sandboxes.at(first.sandbox_id!).destroy();
    await eventually('another works', async () => {
      const list = await projects.runs(id);
      return list.length === 2 && list[0]?.state === 'running' && list[0].attempt === 2;
    });
    expect((await projects.runs(id))[1]).toMatchObject({ id: first.id, exit: 'infra' });
    expect((await projects.get(id)).metrics).toMatchObject({ runs: 0, failed_runs: 0 });
    await projects.kill(id, { delete: true });
  });

  test('takes numbers by hand, once for each key, and a refund or a correction is an entry of its own', async () => {
    const { projects } = daemon.client;
    const { id } = await projects.create({ name: 'By hand' });
    await projects.report(id, { name: 'cost', value: 3 });
    await projects.report(id, { name: 'revenue', value: 10, key: 'invoice-1' });
    expect(await projects.report(id, { name: 'revenue', value: 10, key: 'invoice-1' })).toMatchObject({
      revenue_usd: 10,
    });
    expect(await projects.report(id, { name: 'revenue', value: -4 })).toMatchObject({
      revenue_usd: 6,
      profit_usd: 3,
    });
    expect(await projects.report(id, { name: 'cost', value: -1 })).toMatchObject({ cost_usd: 2 });
    expect((await projects.ledger(id)).map(({ kind, source }) => `${kind} ${source}`)).toEqual([
      'cost hand',
      'revenue hand',
      'refund hand',
      'adjustment hand',
    ]);
  });

  test('counts a run that fails or takes too long as failed, and says why', async () => {
    const { projects } = daemon.client;
    const { id } = await projects.create({ name: 'Failures' });
    await projects.deploy(id, { type: 'scripted', config: { script: 'echo so not >&2; exit 3' } });
    await projects.deploy(id, { type: 'scripted', config: { script: reporting({ revenue_usd: -5 }) } });
    const { metrics, agents } = await ended(id, 2);
    expect(metrics).toMatchObject({ runs: 2, failed_runs: 1, revenue_usd: 0 });
    expect(agents.map(({ last_run }) => last_run?.summary)).toEqual([
      'exit code 3: so not',
      'at work; its /workspace/report.json is no report and counts for nothing',
    ]);
  });

  test('ends what works when it is killed, and leaves nothing but the ledger when it is deleted', async () => {
    const { projects, sandboxes, snapshots } = daemon.client;
    const project = await projects.create({ name: 'Doomed Undertaking' });
    await projects.report(project.id, { name: 'cost', value: 1 });
    const once = await projects.deploy(project.id, { type: 'scripted', config: { script: 'true' } });
    await projects.deploy(project.id, { type: 'scripted', config: { script: 'sleep 600' } });
    await eventually('one sleeps and one is done', async () => {
      const runs = await projects.runs(project.id);
      return (
        runs.some(({ state }) => state === 'running') &&
        runs.some(({ agent, snapshot }) => agent === once.id && snapshot !== null)
      );
    });
    await projects.snapshot(project.id, 'before the end');
    const killed = await projects.kill(project.id);
    expect(killed.status).toBe('killed');
    await expect(
      projects.deploy(project.id, { type: 'scripted', config: { script: 'true' } }),
    ).rejects.toMatchObject({
      code: 'wrong_state',
    });
    await projects.kill(project.id, { delete: true });
    await expect(projects.get(project.id)).rejects.toMatchObject({
      code: 'not_found',
      message: `the project ${project.id} was deleted`,
    });
    await expect(
      projects.deploy(project.id, { type: 'scripted', config: { script: 'true' } }),
    ).rejects.toMatchObject({
      code: 'not_found',
    });
    expect(existsSync(project.workspace)).toBe(false);
    expect((await projects.ledger(project.id)).map(({ usd }) => usd)).toEqual([1]);
    expect((await sandboxes.list()).map((sandbox) => sandbox.project)).not.toContain(project.id);
    expect((await snapshots.list()).map((snapshot) => snapshot.project)).not.toContain(project.id);
    for (const file of readdirSync(join(daemon.home, 'sandbox')).filter((name) =>
      name.startsWith('sandbox.db'),
    ))
      expect(readFileSync(join(daemon.home, 'sandbox', file)).includes('Doomed Undertaking')).toBe(false);
  });

  test.each([
    ['an unknown type', { type: 'astrologer' }, 'not_found', /no agent type astrologer/],
    [
      'a configuration against its schema',
      { type: 'content_creator', config: { platform: 'fax' } },
      'invalid_argument',
      /platform/,
    ],
    [
      'a parameter that the type does not have',
      { type: 'scripted', config: { script: 'true', scrpt: 1 } },
      'invalid_argument',
      /scrpt/,
    ],
    ['a missing parameter', { type: 'scripted' }, 'invalid_argument', /script/],
  ] as const)('refuses %s and is as before', async (_what, input, code, message) => {
    const { projects } = daemon.client;
    const { id } = await projects.create({ name: 'Untouched' });
    const before = await projects.get(id);
    await expect(projects.deploy(id, input as never)).rejects.toMatchObject({
      code,
      message: expect.stringMatching(message),
    });
    expect(await projects.get(id)).toEqual(before);
    expect(await projects.runs(id)).toEqual([]);
    await projects.kill(id, { delete: true });
  });

  test('refuses an experiment that does not exist, and what is complete stays as it is', async () => {
    const { projects } = daemon.client;
    const { id } = await projects.create({ name: 'Logged' });
    await expect(projects.completeExperiment(id, 99_999, { success: true })).rejects.toMatchObject({
      code: 'not_found',
    });
    const logged = await projects.startExperiment(id, {
      name: 'Test 2x budget',
      hypothesis: 'Doubling token budget will improve lead quality',
      config: { token_budget: 20_000 },
    });
    expect(logged).toMatchObject({ state: 'logged', config: { token_budget: 20_000 } });
    const done = await projects.completeExperiment(id, logged.id, {
      results: { lead_quality: 8.5 },
      success: true,
    });
    expect(done).toMatchObject({ state: 'done', success: true, results: { lead_quality: 8.5 } });
    await expect(projects.completeExperiment(id, logged.id, { success: false })).rejects.toMatchObject({
      code: 'wrong_state',
    });
  });

  test('is held to its cap and to its time', async () => {
    const { projects } = daemon.client;
    const capped = await projects.create({ name: 'Capped', cap_usd: 1 });
    await projects.report(capped.id, { name: 'cost', value: 1 });
    await projects.deploy(capped.id, { type: 'scripted', config: { script: 'sleep 600' } });
    expect((await ended(capped.id)).agents[0]?.last_run).toMatchObject({
      exit: 'limit:cost',
      summary: 'the cap of the project is used up',
    });
    const timed = await projects.create({ name: 'Timed', time_limit_s: 2 });
    await projects.deploy(timed.id, { type: 'scripted', config: { script: 'sleep 600' } });
    const over = await ended(timed.id);
    expect(over.agents[0]?.last_run?.exit).toMatch(/limit:time|cancelled/);
    await eventually('the project is over', async () => (await projects.get(timed.id)).status === 'killed');
    expect((await projects.get(timed.id)).ended_because).toBe('its time was over');
  });

  test('runs an agent again by its schedule, and not while it is paused', async () => {
    const { projects } = daemon.client;
    const { id } = await projects.create({ name: 'Regular' });
    const agent = await projects.deploy(id, { type: 'scripted', config: { script: 'true', schedule_s: 1 } });
    await ended(id, 2);
    await projects.changeAgent(id, agent.id, { status: 'paused' });
    await expect(projects.run(id, agent.id)).rejects.toMatchObject({ code: 'wrong_state' });
    expect((await projects.get(id)).agents[0]).toMatchObject({ status: 'paused', next_run_at: null });
    await projects.changeAgent(id, agent.id, { status: 'killed' });
    await expect(projects.changeAgent(id, agent.id, { status: 'active' })).rejects.toMatchObject({
      code: 'wrong_state',
    });
  });
});
