import { expect, test } from 'vitest';
import { isKept } from '../src/runs/steps.ts';

test('steps are thinned by age: the newest and the first stay, and there are never many', () => {
  const kept = new Set<number>();
  for (let last = 1; last <= 5000; last += 1) {
    kept.add(last);
    for (const number of kept) if (!isKept(number, last)) kept.delete(number);
  }
  expect(kept.has(1)).toBe(true);
  for (let number = 5000; number > 4976; number -= 1) expect(kept.has(number)).toBe(true);
  expect(kept.size).toBeLessThan(200);
  const sorted = [...kept].sort((a, b) => a - b);
  // Nowhere is the gap larger than the age of what is around it.
  for (const [index, number] of sorted.entries())
    if (index > 0)
      expect(number - sorted[index - 1]!).toBeLessThanOrEqual(Math.max(1, 5000 - sorted[index - 1]!));
});
