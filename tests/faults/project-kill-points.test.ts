import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type KillPoint,
  killPoints,
  type ProjectKillPoint,
  projectKillPoints,
} from '../../packages/daemon/src/journal/kill-points.ts';

const sources = fileURLToPath(new URL('../../packages/daemon/src/projects/', import.meta.url));

test('every kill point of projects is in the code, and every one in the code is walked', () => {
  const found = readdirSync(sources).flatMap((file) =>
    [...readFileSync(join(sources, file), 'utf8').matchAll(/mayDie\('([^']+)'\)/g)].map((match) => match[1]),
  );
  expect([...new Set(found)].sort()).toEqual([...projectKillPoints].sort());
});

let daemon: RunningDaemon;
beforeAll(async () => {
  daemon = await RunningDaemon.start();
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

const script = `printf '{"cost_usd":1,"revenue_usd":5}' > report.json`;

const allEnded = (project: string, count: number): Promise<unknown> =>
  eventually(`${count} runs have ended`, async () => {
    const runs = await daemon.client.projects.runs(project);
    return runs.filter(({ state, sandbox }) => state === 'ended' && sandbox === null).length === count;
  });

/** Dies there, and comes up again as if nobody had told it to. */
async function dieAt(point: ProjectKillPoint | KillPoint, call: () => Promise<unknown>): Promise<void> {
  daemon.armKillPoint(point);
  await call().catch(() => undefined);
  await daemon.exited;
  daemon.disarm();
  await daemon.restart();
}

const earned = async (): Promise<{ id: string; agent: string; digest: string }> => {
  const { projects } = daemon.client;
  const { id } = await projects.create({ name: 'Walk' });
  const agent = await projects.deploy(id, { type: 'scripted', name: `Lane ${id}`, config: { script } });
  await allEnded(id, 1);
  const { digest } = await projects.evaluate(id);
  return { id, agent: agent.id, digest };
};

describe('a daemon that is killed', () => {
  // A run of a project is a run like any other: it takes no steps and is not rewound, but dies at every other point of runs.
  const ofRuns = killPoints.filter((point) => /^run\.(?!rew|step)/.test(point));
  test.each([...projectKillPoints.filter((point) => point.startsWith('agent-run.')), ...ofRuns])(
    'at %s has run the agent once in the end, booked it once and left no sandbox',
    async (point) => {
      const { projects, sandboxes, runs } = daemon.client;
      const { id } = await projects.create({ name: point });
      await dieAt(point, () =>
        projects.deploy(id, { type: 'scripted', config: { script: `echo at work; ${script}` } }),
      );
      await allEnded(id, 1);
      expect(await runs.list({ project: id })).toMatchObject([
        { state: 'completed', attempt: 1, sandbox_id: null },
      ]);
      expect((await projects.get(id)).metrics).toMatchObject({ cost_usd: 1, revenue_usd: 5, runs: 1 });
      expect((await projects.ledger(id)).length).toBe(2);
      expect(await sandboxes.list()).toEqual([]);
      await projects.kill(id, { delete: true });
      expect(await runs.list({ project: id })).toEqual([]);
    },
  );

  test('in the middle of an experiment neither repeats nor loses a trial', async () => {
    const { projects, sandboxes } = daemon.client;
    const { id } = await projects.create({ name: 'Experiment' });
    const start = () =>
      projects.startExperiment(id, {
        name: 'walk',
        type: 'scripted',
        variants: [
          { name: 'base', config: { script: 'exit 1' } },
          { name: 'new', config: { script: 'printf \'{"cost_usd":1}\' > report.json' } },
        ],
        cases: ['a', 'b', 'c'].map((name) => ({ id: name })),
        stop: 'fixed',
      });
    await dieAt('experiment.base-made', start);
    const experiment = (await projects.get(id)).experiments[0]!.id;
    await eventually('a trial is done', async () =>
      (await projects.experiment(id, experiment)).trials.some(({ state }) => state === 'done'),
    );
    await daemon.kill();
    await daemon.restart();
    await eventually(
      'the experiment is done',
      async () => (await projects.experiment(id, experiment)).state === 'done',
    );
    const { trials, variants } = await projects.experiment(id, experiment);
    expect(trials).toHaveLength(6);
    expect(variants.map(({ n, passed }) => [n, passed])).toEqual([
      [3, 0],
      [3, 3],
    ]);
    // Each trial that passed is in the ledger once.
    expect((await projects.ledger(id)).length).toBe(3);
    await projects.kill(id, { delete: true });
    expect(await sandboxes.list()).toEqual([]);
    await eventually('no snapshot is left', async () =>
      (await daemon.client.snapshots.list()).every(({ project }) => project !== id),
    );
  });

  test.each(['project-snapshot.taken', 'project-snapshot.recorded'] as const)(
    'at %s has the snapshot of the project whole or not at all',
    async (point) => {
      const { projects, snapshots } = daemon.client;
      const { id, workspace } = await projects.create({ name: point });
      writeFileSync(join(workspace, 'plan'), 'kept');
      await projects.deploy(id, { type: 'scripted', config: { script: 'sleep 600' } });
      const works = async () =>
        (await projects.runs(id)).some(({ state, sandbox }) => state === 'running' && sandbox !== null);
      await eventually('it works', works);
      await dieAt(point, () => projects.snapshot(id, 'now'));
      const kept = await projects.snapshots(id);
      const ofSandboxes = async () => (await snapshots.list()).filter(({ project }) => project === id).length;
      await eventually('nothing is left over', async () => (await ofSandboxes()) === kept.length);
      expect(kept.length).toBe(point === 'project-snapshot.recorded' ? 1 : 0);
      const copies = () => readdirSync(join(daemon.home, 'sandbox', 'snapshots'));
      await eventually('no copy of a workspace is left over', () => copies().length === kept.length);
      await eventually('it works on', works);
      await projects.kill(id, { delete: true });
      expect(copies()).toEqual([]);
    },
  );

  test.each(['project-restore.recorded', 'project-restore.rows'] as const)(
    'at %s has brought the project back whole',
    async (point) => {
      const { projects } = daemon.client;
      const { id, workspace } = await projects.create({ name: point });
      writeFileSync(join(workspace, 'plan'), 'kept');
      await projects.note(id, { text: 'before' });
      const { id: snapshot } = await projects.snapshot(id, 'before');
      await projects.note(id, { text: 'after' });
      writeFileSync(join(workspace, 'plan'), 'changed');
      await projects.deploy(id, { type: 'scripted', config: { script: 'sleep 600' } });
      await dieAt(point, () => projects.restore(id, snapshot));
      const plan = join(workspace, 'plan');
      const readPlan = () => (existsSync(plan) ? readFileSync(plan, 'utf8') : undefined);
      await eventually('it is back', async () => {
        const { notes, agents } = await projects.get(id);
        return notes.length === 1 && agents.length === 0 && readPlan() === 'kept';
      });
      await eventually('nothing runs', async () =>
        (await daemon.client.sandboxes.list()).every(({ project }) => project !== id),
      );
      await projects.note(id, { text: 'and on' });
      await projects.kill(id, { delete: true });
    },
  );

  test.each(['promotion.recorded', 'promotion.marked'] as const)('at %s has promoted once', async (point) => {
    const { projects, production } = daemon.client;
    const { id, agent, digest } = await earned();
    await dieAt(point, () => projects.promote(id, digest));
    expect((await projects.get(id)).status).toBe('promoted');
    const again = await projects.promote(id, digest);
    expect(again).toMatchObject({ fresh: false, agents: [{ from_agent: agent }] });
    expect((await production.list()).filter(({ from_agent }) => from_agent === agent)).toHaveLength(1);
  });

  test('at rollback.recorded has rolled back once, for good', async () => {
    const { projects, production } = daemon.client;
    const { id, digest } = await earned();
    const agent = (await projects.promote(id, digest)).agents[0]!.id;
    await dieAt('rollback.recorded', () => production.rollBack(agent, 'no longer wanted'));
    const found = (await production.list()).find((each) => each.id === agent);
    expect(found).toMatchObject({
      stage: 'rolled-back',
      rollback: { reason: 'no longer wanted', by: 'hand' },
    });
    await expect(production.rollBack(agent)).rejects.toMatchObject({ code: 'wrong_state' });
    await expect(production.run(agent)).rejects.toMatchObject({ code: 'wrong_state' });
  });
});
