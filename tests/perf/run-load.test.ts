import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { expect, test } from 'vitest';
import { callerOf, type RunCall, saysItsToken } from '../e2e/run-caller.ts';
import { RunSocketClient } from '../e2e/run-socket-client.ts';

const runs = 50;
const perSecond = 20;
const seconds = 3;
const rounds = 1;
const watchers = 10;
const mostBytesOfAnEvent = 2048;
const mib = 2 ** 20;

test('50 runs with 20 events a second each and 10 watchers: nobody misses an event, and nothing grows', {
  timeout: 300_000,
}, async () => {
  await using daemon = await RunningDaemon.start();
  const { client } = daemon;
  await using sandbox = await client.sandboxes.create();
  const names = Array.from({ length: runs }, (_, n) => `load-${n}`);
  const ids = await Promise.all(
    names.map(async (name) => {
      const given = { name, task: name, command: saysItsToken, sandbox: sandbox.id, steps: 'none' } as const;
      return (await client.runs.start(given)).id;
    }),
  );
  const calls: RunCall[] = await Promise.all(names.map((name) => callerOf(daemon, name)));
  const descriptors = () => readdirSync(`/proc/${daemon.pid}/fd`).length;
  const residentBytes = () =>
    Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${daemon.pid}/status`, 'utf8'))?.[1]) * 1024;
  const databaseBytes = () =>
    ['coppice.db', 'coppice.db-wal'].reduce((sum, file) => {
      try {
        return sum + statSync(join(daemon.home, file)).size;
      } catch {
        return sum;
      }
    }, 0);

  /** Every run reports at its pace; all of its events reach all watchers. */
  const round = async (): Promise<void> => {
    const before = new Map<string, number>();
    for (const id of ids) before.set(id, (await client.runs.get(id)).last_seq);
    const sockets = await Promise.all(Array.from({ length: watchers }, () => RunSocketClient.open(daemon)));
    for (const socket of sockets)
      for (const id of ids)
        socket.say({ type: 'subscribe', run: id, after: before.get(id)!, types: 'agent.progress' });
    await Promise.all(
      calls.map(async (call, run) => {
        for (let n = 0; n < perSecond * seconds; n += 1) {
          const data = { message: `${run}:${n}`, percent: null };
          for (;;) {
            const { status } = await call('POST', 'events', { type: 'agent.progress', data });
            if (status === 201) break;
            // Only where the machine was so slow that all of them come at once.
            expect(status).toBe(429);
            await sleep(100);
          }
          await sleep(1000 / perSecond);
        }
      }),
    );
    const total = runs * perSecond * seconds;
    for (const socket of sockets)
      await eventually('all events have come', async () => socket.events.length >= total, 120_000);
    for (const socket of sockets) {
      expect(socket.events).toHaveLength(total);
      for (const [run, id] of ids.entries()) {
        const messages = socket.of(id).map((event) => (event.data as { message: string }).message);
        expect(messages).toEqual(Array.from({ length: perSecond * seconds }, (_, n) => `${run}:${n}`));
      }
      await socket.close();
    }
    for (const id of ids) {
      const { events } = await client.runs.listEvents(id, { after: before.get(id)!, limit: 5000 });
      expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => before.get(id)! + index + 1));
    }
  };

  await round();
  const quiet = { descriptors: descriptors(), memory: residentBytes(), database: databaseBytes() };
  for (let n = 0; n < rounds; n += 1) await round();
  await eventually('descriptors are given back', async () => descriptors() <= quiet.descriptors + 8);
  // What one round takes for its watchers may stay with the process; another one must not add to it.
  expect(residentBytes() - quiet.memory).toBeLessThan(128 * mib);
  expect(databaseBytes() - quiet.database).toBeLessThan(
    rounds * runs * perSecond * seconds * mostBytesOfAnEvent + 16 * mib,
  );

  for (const name of names) {
    await client.runs.stop(name);
    await client.runs.remove(name);
  }
  await expect(client.runs.listEvents(names[0]!)).rejects.toMatchObject({ code: 'not_found' });
});
