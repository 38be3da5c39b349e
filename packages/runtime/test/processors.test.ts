import { expect, test } from 'vitest';
import { Processors } from '../src/machine/processors.ts';

test('sandboxes of a few processors get them in turn, so that all are used', () => {
  const processors = new Processors([0, 1, 2, 5]);
  expect([1, 0.5, 2, 2, 3].map((cpus) => processors.choose(cpus))).toEqual(['0', '1', '2,5', '0,1', '0,2,5']);
  expect(processors.all).toBe('0,1,2,5');
});

test('a sandbox that may use all processors is kept on none', () => {
  expect(new Processors([0, 1]).choose(2)).toBeUndefined();
  expect(new Processors([0, 1]).choose(1.5)).toBeUndefined();
});
