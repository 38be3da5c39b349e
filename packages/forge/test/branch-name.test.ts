import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { branchNameFor, slugOf } from '../src/branch-name.ts';
import { branchOf } from '../src/builtin/repository.ts';

const ticket = { id: '12', title: 'Add dark mode', type: 'feature', critical: false } as const;
const free = async () => false;

describe('the name of a branch', () => {
  test.each([
    [ticket, 'feature/12-add-dark-mode'],
    [{ ...ticket, type: 'bug' }, 'fix/12-add-dark-mode'],
    [{ ...ticket, type: 'bug', critical: true }, 'hotfix/12-add-dark-mode'],
    [{ ...ticket, type: 'docs', critical: true }, 'docs/12-add-dark-mode'],
    [{ ...ticket, id: 'WEB-7', title: 'Höhe & Länge: 100 %!' }, 'feature/WEB-7-hohe-lange-100'],
    [{ ...ticket, title: '日本語' }, 'feature/12'],
    [{ ...ticket, title: 'x'.repeat(90) }, `feature/12-${'x'.repeat(25)}`],
    [{ ...ticket, title: 'one two three four five six seven' }, 'feature/12-one-two-three-four-five'],
  ] as const)('%o becomes %s', async (given, name) => {
    expect(await branchNameFor(given, free)).toBe(name);
  });

  test('that is taken gets the next number', async () => {
    const taken = new Set(['feature/12-add-dark-mode', 'feature/12-add-dark-mode-2']);
    expect(await branchNameFor(ticket, async (name) => taken.has(name))).toBe('feature/12-add-dark-mode-3');
    await expect(branchNameFor(ticket, async () => true)).rejects.toMatchObject({ code: 'limit_reached' });
  });

  test('is one that git takes, whatever the title', async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: 'binary' }), async (title) => {
        const name = await branchNameFor({ ...ticket, title }, free);
        expect(branchOf(name)).toBe(name);
        expect(slugOf(title).length).toBeLessThanOrEqual(25);
      }),
    );
  });

  test('of a ticket whose id climbs is refused', async () => {
    for (const id of ['../x', 'a/../b', '', 'x y', '-'])
      await expect(branchNameFor({ ...ticket, id }, free), id).rejects.toMatchObject({
        code: 'invalid_argument',
      });
  });
});
