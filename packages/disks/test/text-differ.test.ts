import { TextDiffer } from '@coppice/disks';
import { applyPatch } from 'diff';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';

const names = { beforeName: 'a/file', afterName: 'b/file' };
const text = fc.array(fc.constantFrom('a\n', 'b\n', 'c\n', '\n', 'last')).map((lines) => lines.join(''));

describe.each([
  ['exact', new TextDiffer()],
  ['coarse', new TextDiffer({ searchMs: 0 })],
])('the %s difference of two texts', (_, differ) => {
  it('makes one of the other', async () => {
    await fc.assert(
      fc.asyncProperty(text, text, async (before, after) => {
        const patch = await differ.diff({ ...names, before, after });
        expect(applyPatch(before, patch)).toBe(after);
      }),
      { numRuns: 40 },
    );
  });

  it('has three lines around what differs', async () => {
    const before = '1\n2\n3\n4\n5\n6\n7\n8\n9\n';
    const patch = await differ.diff({ ...names, before, after: before.replace('5', 'five') });
    expect(patch).toContain('@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n');
  });
});

describe('a comparison of texts', () => {
  it('ends when nobody waits for it any more, and lets the next one in', async () => {
    const differ = new TextDiffer({ searchMs: 600_000 });
    const [before, after] = [0, 1].map((shift) =>
      Array.from({ length: 200_000 }, (_, line) => `${(line * line + shift * line * 7 + shift) % 10}\n`).join(
        '',
      ),
    ) as [string, string];
    const caller = new AbortController();
    const hard = Array.from({ length: 3 }, () => differ.diff({ ...names, before, after }, caller.signal));
    const easy = differ.diff({ ...names, before: 'a\n', after: 'b\n' });
    caller.abort();
    for (const { status } of await Promise.allSettled(hard)) expect(status).toBe('rejected');
    expect(await easy).toContain('-a\n+b\n');
  });
});
