import { setTimeout as sleep } from 'node:timers/promises';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

/** Lines of one digit in an order that repeats nowhere: no two such texts have much in common, and everything a little. */
function digits(seed: number, lines: number): Buffer {
  const text = Buffer.alloc(lines * 2, '\n');
  let state = seed;
  for (let line = 0; line < lines; line += 1) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    text[line * 2] = 0x30 + ((state >>> 16) % 10);
  }
  return text;
}

describe('while one sandbox makes the daemon work hard', () => {
  let daemon: RunningDaemon;
  let source: Sandbox;
  let fork: Sandbox;

  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    source = await daemon.client.sandboxes.create({ name: 'source' });
    await source.files.write('/root/digits', digits(1, 291_500));
    await source.files.write('/root/plain', 'one\n');
    fork = (await source.fork({ name: 'fork' })).sandboxes[0]!;
    await fork.files.write('/root/digits', digits(2, 291_500));
    await fork.files.write('/root/plain', 'two\n');
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  /** How many other calls are answered between the beginning of some work and its end. */
  async function answeredDuring(work: Promise<unknown>): Promise<number> {
    let done = false;
    const ended = work.finally(() => {
      done = true;
    });
    let answered = 0;
    while (!done) {
      await daemon.client.health();
      if (!done) answered += 1;
      // Fewer than a token may call.
      await sleep(5);
    }
    await ended;
    return answered;
  }

  test('others are served: two texts that are hard to compare', async () => {
    const easy = await answeredDuring(daemon.client.diffFile('source', 'fork', '/root/plain'));
    const hard = daemon.client.diffFile('source', 'fork', '/root/digits');
    expect(await answeredDuring(hard)).toBeGreaterThan(2 * easy + 20);
    const { unified, binary, truncated } = await hard;
    expect({ binary, truncated }).toEqual({ binary: false, truncated: false });
    expect(unified).toContain('--- a/root/digits\n+++ b/root/digits\n@@ ');
  });
});
