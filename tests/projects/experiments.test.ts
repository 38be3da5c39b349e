import type { Experiment } from '@coppice/protocol';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';

let daemon: RunningDaemon;
let project: string;
beforeAll(async () => {
  daemon = await RunningDaemon.start();
  project = (await daemon.client.projects.create({ name: 'Lab' })).id;
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

type Input = Parameters<typeof daemon.client.projects.startExperiment>[1];

const start = async (input: Input): Promise<Experiment> => {
  const { id } = await daemon.client.projects.startExperiment(project, input);
  await eventually(`experiment ${id} ends`, async () => {
    const { state } = await daemon.client.projects.experiment(project, id);
    return state !== 'running';
  });
  return daemon.client.projects.experiment(project, id);
};

const cases = (count: number) =>
  Array.from({ length: count }, (_none, index) => ({ id: `c${index}`, input: String(index) }));

test('A/B: every trial is a fork of one snapshot, and the evidence ends it as soon as it decides', async () => {
  const found = await start({
    name: 'ab',
    hypothesis: 'the new one passes',
    type: 'scripted',
    variants: [
      {
        name: 'base',
        config: { script: 'test -e /workspace/seen && exit 9; touch /workspace/seen; exit 1' },
      },
      { name: 'new', config: { script: 'test -e /workspace/seen && exit 9; touch /workspace/seen' } },
    ],
    cases: cases(20),
    parallel: 4,
  });
  expect(found).toMatchObject({ state: 'done', winner: 'new', success: true });
  const [base, better] = found.variants;
  expect(base).toMatchObject({ passed: 0, gate: null });
  expect(better).toMatchObject({ rate: 1, gate: { verdict: 'better' } });
  // Eight pairs that all go one way are evidence of 28 to 1: there is no need for twenty.
  expect(found.trials.filter(({ state }) => state === 'done').length).toBeLessThan(40);
  expect(found.trials.every(({ reason }) => !reason.includes('exit code 9'))).toBe(true);
  await eventually('nothing of it is left', async () => {
    await daemon.client.projects.get(project);
    return (
      (await daemon.client.snapshots.list()).length === 0 &&
      (await daemon.client.sandboxes.list()).length === 0
    );
  });
});

test('few cases are no verdict but a number of cases that would be one', async () => {
  const found = await start({
    name: 'few',
    type: 'scripted',
    variants: [
      { name: 'base', config: { script: 'exit 1' } },
      { name: 'new', config: { script: 'true' } },
    ],
    cases: cases(2),
  });
  expect(found).toMatchObject({ winner: null, success: false });
  expect(found.variants[1]?.gate).toMatchObject({ verdict: 'inconclusive' });
  expect(found.said).toMatch(/^not enough data, about \d+ more cases$/);
});

test('a script judges in a fork, which leaves the trial alone, and may give a score', async () => {
  const found = await start({
    name: 'script',
    template: 'regression',
    type: 'scripted',
    variants: [{ name: 'only', config: { script: 'cat .agent/case > answer' } }],
    cases: [
      { id: 'right', input: '42' },
      { id: 'wrong', input: '7' },
    ],
    evaluator: {
      kind: 'script',
      script: 'echo "looked at $COPPICE_CASE" >&2; cat answer; echo; test "$(cat answer)" = 42',
    },
  });
  expect(found).toMatchObject({
    state: 'done',
    success: false,
    results: { cases: 2, failed: ['only:wrong'] },
  });
  expect(found.trials.map(({ case: id, passed, score }) => [id, passed, score]).toSorted()).toEqual([
    ['right', true, 42],
    ['wrong', false, 7],
  ]);
  await eventually('its sandboxes are gone', async () => (await daemon.client.sandboxes.list()).length === 0);
});

test('a diff judges by what changed', async () => {
  const found = await start({
    name: 'diff',
    template: 'regression',
    type: 'scripted',
    variants: [
      { name: 'tidy', config: { script: 'echo x > /workspace/result' } },
      { name: 'messy', config: { script: 'echo x > /workspace/result; echo y > /etc/elsewhere' } },
      { name: 'idle', config: { script: 'true' } },
    ],
    evaluator: { kind: 'diff', must_change: ['/workspace/result'] },
  });
  const reasons = Object.fromEntries(
    found.trials.map(({ variant, passed, reason }) => [variant, `${passed} ${reason}`]),
  );
  expect(reasons.tidy).toMatch(/^true/);
  expect(reasons.messy).toBe('false it also changed /etc/elsewhere');
  expect(reasons.idle).toBe('false it did not change /workspace/result');
});

test('a person judges, and the experiment waits for it', async () => {
  const { projects } = daemon.client;
  const { id } = await projects.startExperiment(project, {
    name: 'person',
    template: 'regression',
    type: 'scripted',
    variants: [{ name: 'only', config: { script: 'true' } }],
    evaluator: { kind: 'person' },
  });
  await eventually('a trial waits', async () =>
    (await projects.experiment(project, id)).trials.some(({ state }) => state === 'waiting'),
  );
  await expect(projects.score(project, id, { trial: 9, passed: true })).rejects.toMatchObject({
    code: 'not_found',
  });
  await projects.score(project, id, { trial: 1, passed: true, reason: 'well done' });
  await eventually('it is done', async () => (await projects.experiment(project, id)).state === 'done');
  expect(await projects.experiment(project, id)).toMatchObject({
    success: true,
    trials: [{ reason: 'well done' }],
  });
});

test('a trial that the machine broke is run again, and only its second try counts', async () => {
  const { projects, runs, sandboxes } = daemon.client;
  const { id } = await projects.create({ name: 'Broken trial' });
  const { id: experiment } = await projects.startExperiment(id, {
    name: 'broken',
    type: 'scripted',
    template: 'regression',
    variants: [{ name: 'only', config: { script: 'test "$(cat .agent/case)" = quick || sleep 600' } }],
    cases: [{ id: 'slow', input: 'slow' }],
  });
  const working = () => runs.list({ project: id, state: 'running' });
  await eventually('the trial works', async () => (await working()).length === 1);
  const [first] = await working();
  await sandboxes.at(first!.sandbox_id!).destroy();
  await eventually('it is run again', async () => {
    const [second] = await working();
    return second !== undefined && second.id !== first!.id;
  });
  const [trial] = (await projects.experiment(id, experiment)).trials;
  expect(trial).toMatchObject({ state: 'running', attempts: 2, passed: null });
  const [second] = await working();
  expect(second!.labels).toMatchObject({ experiment: String(experiment), variant: 'only', trial: '1' });
  await projects.kill(id, { delete: true });
});

test('a trial that hits its time limit counts as failed', async () => {
  const found = await start({
    name: 'slow',
    template: 'regression',
    type: 'scripted',
    variants: [{ name: 'slow', config: { script: 'sleep 300' }, time_limit_s: 1 }],
  });
  expect(found.trials).toMatchObject([{ exit: 'limit:time', passed: false, attempts: 1 }]);
});

test('the best of n is merged into the sandbox that it grew from', async () => {
  const dev = await daemon.client.sandboxes.create({ name: 'dev' });
  await dev.exec('mkdir -p /workspace && echo 3 1 2 > /workspace/numbers');
  const base = await dev.snapshot({ name: 'base' });
  const found = await start({
    name: 'best',
    template: 'best-of-n',
    type: 'scripted',
    snapshot: base.id,
    merge_into: 'dev',
    variants: [
      { name: 'broken', config: { script: 'exit 1' } },
      { name: 'good', config: { script: 'tr " " "\\n" < numbers | sort -n > sorted' } },
    ],
    evaluator: { kind: 'script', script: 'test "$(head -1 sorted)" = 1' },
  });
  expect(found).toMatchObject({ state: 'done', winner: 'good' });
  expect((await dev.exec('cat /workspace/sorted; ls -A /workspace')).stdout.split('\n')).toEqual([
    '1',
    '2',
    '3',
    'numbers',
    'sorted',
    '',
  ]);
  await dev.destroy();
});

test('a bisection finds the snapshot that broke it', async () => {
  const dev = await daemon.client.sandboxes.create({ name: 'history' });
  const snapshots: string[] = [];
  for (let at = 0; at < 6; at += 1) {
    if (at === 4) await dev.exec('touch /root/broken');
    snapshots.push((await dev.snapshot({ name: `s${at}` })).id);
  }
  const found = await start({
    name: 'bisect',
    template: 'bisect',
    type: 'scripted',
    config: { script: 'test ! -e /root/broken' },
    snapshots,
  });
  expect(found).toMatchObject({
    state: 'done',
    results: { first_bad: snapshots[4], last_good: snapshots[3] },
  });
  expect(found.trials.length).toBeLessThanOrEqual(5);
  await dev.destroy();
});

test.each([
  [
    'one variant against nothing',
    { template: 'ab', variants: [{ name: 'only', config: { script: 'true' } }] },
    /at least two variants/,
  ],
  [
    'two variants of one name',
    { variants: [1, 2].map(() => ({ name: 'same', config: { script: 'true' } })) },
    /same name/,
  ],
  [
    'a configuration against the schema',
    {
      variants: [
        { name: 'a', config: {} },
        { name: 'b', config: { script: 'true' } },
      ],
    },
    /script/,
  ],
  [
    'a snapshot that is not there',
    { template: 'bisect', config: { script: 'true' }, snapshots: ['sn_none', 'sn_none2'] },
    /sn_none/,
  ],
] as const)('%s is refused, and nothing is begun', async (_what, input, message) => {
  const before = (await daemon.client.projects.get(project)).experiments.length;
  await expect(
    daemon.client.projects.startExperiment(project, { name: 'bad', ...(input as object) }),
  ).rejects.toMatchObject({ message: expect.stringMatching(message) });
  expect((await daemon.client.projects.get(project)).experiments).toHaveLength(before);
});
