import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Event } from '@coppice/protocol';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { expect, test } from 'vitest';
import { EventTable } from '../src/db/event-table.ts';
import { openDatabase } from '../src/db/open-database.ts';

test('of events the newest are kept, and those of the last days; the very last always', () => {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-events-'));
  const database = openDatabase(join(directory, 'db'), join(directory, 'backup'));
  try {
    const events = new EventTable(database);
    database.transaction(() => {
      for (let at = 1; at <= 10_000; at += 1) events.append(at, 'tick', null, {});
    })();
    expect(events.prune(100_000, 0)).toBe(false);
    expect(events.oldest()?.seq).toBe(1);
    let rounds = 1;
    while (events.prune(3000, 0)) rounds += 1;
    expect(rounds).toBeGreaterThan(1);
    expect(events.oldest()?.seq).toBe(7001);
    while (events.prune(3000, 9_900));
    expect(events.oldest()?.seq).toBe(9_900);
    while (events.prune(3000, 1_000_000));
    expect([events.oldest()?.seq, events.lastSeq()]).toEqual([10_000, 10_000]);
    expect(events.append(10_001, 'tick', null, {}).seq).toBe(10_001);
  } finally {
    database.close();
    rmSync(directory, { recursive: true });
  }
});

test('who asks for events that are no longer kept is told which, and goes on from there', async () => {
  const kept = 100;
  await using daemon = await RunningDaemon.start({ config: { limits: { events_kept: kept } } });
  const { events } = daemon.client;
  const sandbox = await daemon.client.sandboxes.create();
  const other = await daemon.client.sandboxes.create();
  const { last_seq: start } = await events.list();
  const abort = new AbortController();
  const { signal } = abort;
  const ofOther = events.stream({ after: start - 1, sandbox: other.id, signal });
  expect((await ofOther.next()).value).toMatchObject({ type: 'sandbox.created' });
  const nextOfOther = ofOther.next();
  for (let step = 0; step < 3 * kept; step += 1) await sandbox.update({ labels: { step: String(step) } });
  const last = start + 3 * kept;
  const oldest = async () => (await events.list({ limit: 1 })).events[0]!.seq;
  await eventually('old ones are gone', async () => (await oldest()) > last - kept);
  const lost = { type: 'events.lost', sandbox_id: null, data: { from: start + 1, to: last - kept } };
  const page = await events.list({ after: start, limit: 3 });
  expect(page.last_seq).toBe(last);
  expect(page.events).toMatchObject([lost, { seq: last - kept + 1 }, { seq: last - kept + 2 }]);
  const seen: Event[] = [];
  for await (const event of events.stream({ after: start, signal })) {
    seen.push(event);
    if (event.seq === last) break;
  }
  expect(seen[0]).toMatchObject({ ...lost, seq: last - kept });
  expect(seen.slice(1).map(({ seq }) => seq)).toEqual(
    Array.from({ length: kept }, (_, index) => last - kept + 1 + index),
  );
  // Nothing of its own was lost to who waits for another; nor is it to who asks for all that there is.
  await other.destroy();
  expect((await nextOfOther).value).toMatchObject({ type: 'sandbox.destroyed' });
  expect((await events.list()).events[0]?.type).toBe('sandbox.updated');
  abort.abort();
});
