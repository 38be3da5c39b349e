import type { RunEvent } from '@coppice/protocol';
import type { Coppice, Sandbox } from '@coppice/sdk';
import { describeWithMemory, eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

let daemon: RunningDaemon;
let coppice: Coppice;
beforeAll(async () => {
  daemon = await RunningDaemon.start({ programs: ['curl'] });
  coppice = daemon.client;
});
afterAll(() => daemon?.[Symbol.asyncDispose]());

const all = async (run: string): Promise<RunEvent[]> => (await coppice.runs.listEvents(run)).events;
const texts = async (run: string): Promise<string[]> =>
  (await all(run)).flatMap((event) => (event.type === 'agent.message' ? [event.data.text.text] : []));

/** A run that waits, and a shell with what its program has. */
async function waiting(driver: 'container' | 'gvisor', name: string) {
  const sandbox = await coppice.sandboxes.create({ driver });
  const script = 'export -p > /workspace/env.new; mv /workspace/env.new /workspace/env; sleep 600';
  const run = await coppice.runs.start({ name, task: 'wait', command: script, sandbox: sandbox.id });
  await eventually(
    'its program runs',
    async () => (await sandbox.exec('test -s /workspace/env')).exit_code === 0,
  );
  const inside = (command: string) => sandbox.exec(`. /workspace/env; ${command}`);
  return { run, sandbox, inside, end: () => endOf(run.id, sandbox) };
}

const endOf = async (run: string, sandbox: Sandbox) => {
  await coppice.runs.stop(run);
  await coppice.runs.remove(run);
  await sandbox.destroy();
};

describe.each(['container', 'gvisor'] as const)(
  'a program of a run, in a sandbox of %s without a network',
  (driver) => {
    test('reports, hears and ends with the helper, from its first moment on', async () => {
      const script = `set -e
      coppice-agent event agent.message text='I begin'
      coppice-agent heartbeat 'at work'
      coppice-agent inbox --wait 25 > /workspace/told
      coppice-agent inbox --after 1
      coppice-agent done "did: $(grep -o 'use a queue' /workspace/told)"`;
      const run = await coppice.runs.start({
        name: `helper-${driver}`,
        task: 'talk',
        command: script,
        driver,
      });
      await coppice.runs.tell(run.id, 'use a queue');
      expect(await coppice.runs.wait(run.id)).toMatchObject({ state: 'completed', outcome: 'succeeded' });
      expect(await coppice.runs.result(run.id)).toMatchObject({ text: 'did: use a queue', exit_code: 0 });
      expect(await texts(run.id)).toEqual(['I begin']);
      expect(
        (await all(run.id)).some(({ type, source }) => type === 'agent.heartbeat' && source === 'agent'),
      ).toBe(true);
      expect(await coppice.runs.messages(run.id)).toMatchObject([{ state: 'delivered', via: 'inbox' }]);
      await coppice.runs.remove(run.id);
    });

    test('does the same with any HTTP client', async () => {
      const { run, inside, end } = await waiting(driver, `curl-${driver}`);
      const curl =
        'curl -sS --unix-socket "$COPPICE_RUN_SOCKET" -H "Authorization: Bearer $COPPICE_RUN_TOKEN"';
      const json = "-H 'Content-Type: application/json'";
      const said = await inside(
        `${curl} ${json} -d '{"type":"agent.message","data":{"text":"by hand"}}' http://localhost/v1/run/events`,
      );
      expect(JSON.parse(said.stdout)).toEqual({ seq: expect.any(Number) });
      expect(await texts(run.id)).toEqual(['by hand']);
      await coppice.runs.tell(run.id, 'hello');
      const heard = await inside(`${curl} 'http://localhost/v1/run/messages?wait_s=25'`);
      expect(JSON.parse(heard.stdout)).toMatchObject({ items: [{ number: 1, text: 'hello' }] });
      await end();
    });

    test('that waits for a message gets it from the daemon that comes after the one that was killed', async () => {
      const { run, sandbox, inside, end } = await waiting(driver, `kept-${driver}`);
      await sandbox.jobs.start(
        '. /workspace/env; touch /workspace/asks; coppice-agent inbox --wait 25 > /workspace/told',
      );
      await eventually(
        'it asks',
        async () => (await sandbox.exec('test -e /workspace/asks')).exit_code === 0,
      );
      await daemon.kill();
      await daemon.restart();
      await coppice.runs.tell(run.id, 'still there?');
      await eventually('it is told', async () =>
        (await sandbox.exec('cat /workspace/told')).stdout.includes('still there?'),
      );
      expect((await inside('coppice-agent event agent.message text="still here"')).exit_code).toBe(0);
      expect(await texts(run.id)).toEqual(['still here']);
      await end();
    });
  },
);

describe('the door in the sandbox of a run', () => {
  test('leads to this run alone: not to another one, not to anything else of the daemon', async () => {
    const one = await waiting('container', 'one');
    const two = await waiting('container', 'two');
    const call = (token: string, path: string) =>
      one.inside(
        `curl -sS --unix-socket "$COPPICE_RUN_SOCKET" -H "Authorization: Bearer ${token}" http://localhost${path}`,
      );
    // Even an administrator's token does nothing here.
    for (const path of [
      '/v1/sandboxes',
      '/v1/runs',
      '/docs',
      '/',
      '/v1/run/../sandboxes',
      '/mcp',
      '/v1/runs/one',
    ])
      expect(JSON.parse((await call(daemon.token, path)).stdout)).toMatchObject({ status: 404 });
    expect(JSON.parse((await call(daemon.token, '/v1/run/messages')).stdout)).toMatchObject({
      code: 'forbidden',
    });
    expect(JSON.parse((await call('cpt_nobody', '/v1/run/messages')).stdout)).toMatchObject({
      code: 'unauthenticated',
    });
    const named = await one.inside(`coppice-agent event agent.message text=x run_id=${two.run.id}`);
    expect(named).toMatchObject({ exit_code: 1, stderr: expect.stringContaining('invalid_argument') });
    expect(await texts(two.run.id)).toEqual([]);
    await one.end();
    await two.end();
  });

  test('can be used by any user of the sandbox who has the token', async () => {
    const { run, sandbox, inside, end } = await waiting('container', 'plain');
    const token = (await inside('echo $COPPICE_RUN_TOKEN')).stdout.trim();
    const said = await sandbox.exec('/run/coppice/bin/coppice-agent event agent.message text=me', {
      user: '1234',
      env: { COPPICE_RUN_TOKEN: token },
    });
    expect(said).toMatchObject({ exit_code: 0 });
    expect(await texts(run.id)).toEqual(['me']);
    const stranger = await sandbox.exec('/run/coppice/bin/coppice-agent event agent.message text=me');
    expect(stranger).toMatchObject({ exit_code: 69 });
    await end();
  });

  test('is held to what a run may report, and is there for others while one program fills it', async () => {
    const { run, inside, end } = await waiting('container', 'busy');
    const refused = await inside(
      'head -c 400000 /dev/zero | tr "\\0" x | { printf \'{"text":"\'; cat; printf \'"}\'; } | coppice-agent event agent.message -',
    );
    expect(refused).toMatchObject({ exit_code: 1, stderr: expect.stringContaining('too_large') });
    const flood = await inside(
      'for i in $(seq 25); do coppice-agent heartbeat; done > /dev/null 2> /workspace/refused; grep -c rate_limited /workspace/refused',
    );
    expect(Number(flood.stdout)).toBeGreaterThan(0);
    // Connections that say nothing fill the places of this sandbox; the daemon and its other doors do not care.
    const silent = await inside(
      'for i in $(seq 40); do (sleep 600 | curl -sN --unix-socket "$COPPICE_RUN_SOCKET" -T - http://localhost/v1/run/events > /dev/null 2>&1 &) ; done; echo begun',
    );
    expect(silent.stdout).toContain('begun');
    expect((await coppice.runs.get(run.id)).state).toBe('running');
    await end();
  });

  test('closes with the run', async () => {
    const { run, sandbox, inside } = await waiting('container', 'closing');
    expect((await inside('coppice-agent heartbeat')).exit_code).toBe(0);
    const waitingCall = inside('coppice-agent inbox --wait 25');
    await coppice.runs.stop(run.id);
    expect((await waitingCall).stdout).not.toContain('"text"');
    await coppice.runs.remove(run.id);
    await sandbox.destroy();
  });
});

describeWithMemory('a program that keeps a call open while its memory is kept, in a sandbox', (driver) => {
  test('is heard after it went back to that step with its memory', async () => {
    await using own = await RunningDaemon.start({ config: driver.config });
    const { runs } = own.client;
    const script = `coppice-agent inbox --wait 25 > /workspace/first
      coppice-agent event agent.message text="$(cat /workspace/first)"; sleep 600`;
    const run = await runs.start({ name: 'kept', task: 'wait', command: script, step_memory: true });
    await eventually('it works', async () => (await runs.get('kept')).state === 'running');
    const said = async () =>
      (await runs.listEvents('kept')).events.flatMap((event) =>
        event.type === 'agent.message' ? [event.data.text.text] : [],
      );
    const step = await runs.takeStep('kept');
    expect(step.has_memory).toBe(true);
    await runs.rewind('kept', step.number, { message: 'from there' });
    await eventually('it is told', async () => (await said()).some((text) => text.includes('from there')));
    expect(await runs.get(run.id)).toMatchObject({ attempt: 1 });
    await runs.stop('kept');
    await runs.remove('kept');
  });
});
