import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { RunEvent } from '@coppice/protocol';
import type { Coppice } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const mebibyte = 2 ** 20;
const diskMb = 32;
const memoryMb = 64;
const patienceMs = 300_000;

const isFullNotice = (event: RunEvent): boolean =>
  event.type === 'agent.error' && /record of this run is full/.test(event.data.message.text);

describe('a program in a sandbox with the token of its run', () => {
  let daemon: RunningDaemon;
  let coppice: Coppice;

  beforeAll(async () => {
    daemon = await RunningDaemon.start({
      config: { limits: { run_record_mb: 2, snapshot_space_per_sandbox: 1 } },
    });
    coppice = daemon.client;
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  const databaseBytes = (): number =>
    readdirSync(daemon.home)
      .filter((name) => name.startsWith('coppice.db'))
      .reduce((sum, name) => sum + statSync(join(daemon.home, name)).size, 0);

  async function allEvents(run: string): Promise<RunEvent[]> {
    const events: RunEvent[] = [];
    for (;;) {
      const page = await coppice.runs.listEvents(run, { after: events.at(-1)?.seq ?? 0 });
      if (page.events.length === 0) return events;
      events.push(...page.events);
    }
  }

  /** A run that waits, and what calls with its token. */
  async function waiting(name: string) {
    await coppice.runs.start({
      name,
      task: 'wait',
      command: 'echo $COPPICE_RUN_TOKEN; sleep 100000',
      disk_mb: diskMb,
      memory_mb: memoryMb,
    });
    let token: string | undefined;
    await eventually('the program says its token', async () => {
      const said = (await allEvents(name)).flatMap((event) =>
        event.type === 'agent.output' ? [event.data.text.text] : [],
      );
      token = /cpt_[A-Za-z0-9_-]+/.exec(said.join(''))?.[0];
      return token !== undefined;
    });
    return async (path: string, body: object) => {
      const response = await fetch(`${daemon.url}/v1/run/${path}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      return { status: response.status, body: (await response.json()) as Record<string, unknown> };
    };
  }

  const end = async (name: string): Promise<void> => {
    await coppice.runs.stop(name);
    await coppice.runs.remove(name);
  };

  test('that writes without end has no more on record than a run may have, is told so once, and ends as it does', async () => {
    const before = databaseBytes();
    // Each line is another one: what is written twice is kept once.
    await coppice.runs.start({ name: 'loud', task: 'write', command: 'seq 1 20000000; exit 7' });
    const ended = await coppice.runs.wait('loud');
    expect(ended).toMatchObject({ state: 'failed', reason: 'it exited with 7' });
    expect(databaseBytes() - before).toBeLessThan(16 * mebibyte);
    const events = await allEvents('loud');
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1));
    expect(events.filter(isFullNotice)).toHaveLength(1);
    expect(events.at(-1)).toMatchObject({ type: 'run.state', data: { to: 'failed' } });
    await coppice.runs.remove('loud');
  });

  test('that reports without end is refused once its record is full, and what the daemon says is still kept', async () => {
    const call = await waiting('chatty');
    let refused: Awaited<ReturnType<typeof call>> | undefined;
    for (let round = 0; refused === undefined && round < 100; round += 1) {
      const said = await call('events', {
        type: 'agent.message',
        data: { text: `${round} `.repeat(40_000) },
      });
      if (said.status === 429) await new Promise((resolve) => setTimeout(resolve, 1000));
      if (said.status !== 201 && said.body.code !== 'rate_limited') refused = said;
    }
    expect(refused?.body).toMatchObject({
      code: 'limit_reached',
      hint: expect.stringContaining('run_record_mb'),
    });
    const events = await allEvents('chatty');
    expect(events.filter(isFullNotice)).toHaveLength(1);
    expect((await call('done', { success: true, text: 'done' })).status).toBe(200);
    await coppice.runs.stop('chatty');
    expect((await allEvents('chatty')).at(-1)).toMatchObject({
      type: 'run.state',
      data: { to: 'completed', outcome: 'cancelled' },
    });
    await coppice.runs.remove('chatty');
  });

  test('reports no event whose fields are large, as everybody who lists events has to read them', async () => {
    const call = await waiting('custom');
    const custom = (data: object) => call('events', { type: 'agent.custom', data: { name: 'x', data } });
    expect((await custom({ text: 'x'.repeat(1000) })).status).toBe(201);
    expect((await custom({ text: 'x'.repeat(20_000) })).body).toMatchObject({ code: 'too_large' });
    await end('custom');
  });

  test('cannot keep more than its sandbox may keep in snapshots by the steps that its tool calls become', async () => {
    const call = await waiting('stepper');
    const { sandbox_id } = await coppice.runs.get('stepper');
    const sandbox = coppice.sandboxes.at(sandbox_id!);
    const rewrite = async (): Promise<void> => {
      const command = 'rm -f /root/data; sync; head -c 18M /dev/urandom > /root/data && sync';
      for (;;) if ((await sandbox.exec(command)).exit_code === 0) return;
    };
    const outcomes = async () =>
      (await allEvents('stepper')).filter(
        (event) =>
          event.type === 'run.step' ||
          (event.type === 'agent.error' && event.data.message.text.startsWith('a step could not be taken')),
      );
    // Three times what the limit allows.
    for (let round = 0; round < 15; round += 1) {
      await rewrite();
      const known = (await outcomes()).length;
      const said = { call_id: `${round}`, tool: 'write', ok: true, output: '' };
      expect((await call('events', { type: 'agent.tool_result', data: said })).status).toBe(201);
      await eventually(
        'the step is taken or refused',
        async () => (await outcomes()).length > known,
        patienceMs,
      );
    }
    const last = (await outcomes()).at(-1);
    expect(last).toMatchObject({
      type: 'agent.error',
      data: { message: { text: expect.stringMatching(/snapshots of sandbox \S+ would hold/) } },
    });
    const taken = (await outcomes()).filter(({ type }) => type === 'run.step').length;
    expect(taken * 18).toBeLessThan(diskMb + memoryMb + 2 * 18);
    await end('stepper');
  });
});
