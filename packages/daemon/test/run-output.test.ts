import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { Intake } from '../src/runs/intake.ts';
import { OutputLines } from '../src/runs/output-lines.ts';

describe('what agents write', () => {
  test('is taken in piece by piece, with as much time for others', async () => {
    const pauses: { readonly durationMs: number; readonly end: () => void }[] = [];
    const intake = new Intake(
      (durationMs) =>
        new Promise<void>((resolve) => {
          pauses.push({ durationMs, end: resolve });
        }),
    );
    const order: string[] = [];
    const work = (name: string) =>
      intake.take(() => {
        const endMs = performance.now() + 5;
        while (performance.now() < endMs);
        order.push(name);
      });
    const both = [work('one'), work('two')];
    await both[0];
    while (pauses.length === 0) await turn();
    expect(pauses[0]?.durationMs).toBeGreaterThanOrEqual(5);
    expect(order).toEqual(['one']);
    pauses[0]?.end();
    await both[1];
    expect(order).toEqual(['one', 'two']);
  });

  test('goes on after a piece that failed', async () => {
    const intake = new Intake();
    const failing = intake.take(() => {
      throw new Error('no');
    });
    await expect(failing).rejects.toThrow('no');
    let isDone = false;
    await intake.take(() => {
      isDone = true;
    });
    expect(isDone).toBe(true);
  });

  test('to two streams in turn, a byte each, becomes two pieces', () => {
    const chunks = Array.from({ length: 1000 }, (_, index) => ({
      stream: index % 2 === 0 ? ('stdout' as const) : ('stderr' as const),
      data: Buffer.from(index % 2 === 0 ? 'o' : 'e'),
    }));
    const pieces = new OutputLines(undefined).take(chunks, 'chunks');
    expect(pieces).toEqual([
      { stream: 'stdout', text: 'o'.repeat(500) },
      { stream: 'stderr', text: 'e'.repeat(500) },
    ]);
    expect(new OutputLines(undefined).take(chunks.slice(0, 4), 'chunks')).toHaveLength(4);
  });
});
