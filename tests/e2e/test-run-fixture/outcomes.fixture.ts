import { skipFor } from '@coppice/testkit';
import { beforeAll, describe, expect, test } from 'vitest';

let tries = 0;

test('passes', () => {});
test('fails', () => expect(1).toBe(2));
test('passes at the second try', () => {
  tries += 1;
  expect(tries).toBe(2);
});
test('is left out', ({ skip }) => skip('the machine lacks it'));
describe('a suite that cannot run here', skipFor('the machine lacks them all'), () => {
  test('is left out too', () => {});
});
describe('a suite', () => {
  beforeAll(() => {
    throw new Error('the hook broke');
  });
  test('never runs', () => {});
});
