import type { ProjectMetrics } from '@coppice/protocol';
import { describe, expect, test } from 'vitest';
import {
  baselineRate,
  guard,
  judge,
  mayPromote,
  meanGate,
  passGate,
  roiOf,
  shareGate,
} from '../src/index.ts';

const metrics = (cost: number, revenue: number, activeAgents: number): ProjectMetrics => ({
  cost_usd: cost,
  revenue_usd: revenue,
  profit_usd: revenue - cost,
  roi: roiOf(revenue * 1e6, cost * 1e6),
  tokens: 0,
  agents: 1,
  active_agents: activeAgents,
  runs: 1,
  failed_runs: 0,
});

describe('the recommendation', () => {
  test.each([
    ['STRONGLY_RECOMMEND', 'more than 300 % and all criteria', metrics(2, 11, 1)],
    ['RECOMMEND', 'exactly 300 %', metrics(2, 8, 1)],
    ['RECOMMEND', 'a little more than the cost', metrics(2, 2.01, 1)],
    ['CONSIDER', 'a positive return without an active agent', metrics(2, 11, 0)],
    ['NOT_READY', 'no profit', metrics(2, 2, 1)],
    ['NOT_READY', 'a loss', metrics(2, 1, 1)],
    ['NOT_READY', 'revenue that cost nothing: nothing was tried', metrics(0, 10, 1)],
    ['NOT_READY', 'an untouched project', metrics(0, 0, 0)],
  ] as const)('is %s for %s', (expected, _what, given) => {
    const { recommendation, criteria } = judge(given);
    expect(recommendation).toBe(expected);
    expect(criteria.map(({ name }) => name)).toEqual([
      'positive_roi',
      'profitable',
      'has_active_agents',
      'has_sufficient_data',
    ]);
    expect(mayPromote(recommendation)).toBe(expected.endsWith('RECOMMEND'));
  });

  test('counts the return in percent: 2 in, 11 out is 450 %', () => {
    expect(roiOf(11e6, 2e6)).toBe(450);
    expect(roiOf(11e6, 0)).toBe(0);
  });
});

describe('a verdict', () => {
  const pairs = { bothPassed: 3, onlyFirst: 0, onlySecond: 0, neitherPassed: 0 };
  test('has three values, and few cases decide nothing', () => {
    expect(passGate({ ...pairs, onlyFirst: 12 }, 'anytime').verdict).toBe('better');
    expect(passGate({ ...pairs, onlySecond: 12 }, 'anytime').verdict).toBe('worse');
    const open = passGate({ ...pairs, onlyFirst: 2 }, 'anytime');
    expect(open.verdict).toBe('inconclusive');
    expect(open.needs_more).toBeGreaterThan(0);
    expect(open.said).toBe(`not enough data, about ${open.needs_more} more cases`);
  });

  test('needs less at the one end of a fixed number of cases than at any time', () => {
    const close = { ...pairs, onlyFirst: 6 };
    expect(passGate(close, 'fixed').verdict).toBe('better');
    expect(passGate(close, 'anytime').verdict).toBe('inconclusive');
  });

  test('on shares and on numbers of different runs', () => {
    expect(shareGate('failures', [20, 40], [38, 40]).verdict).toBe('better');
    expect(shareGate('failures', [20, 40], [22, 40]).verdict).toBe('inconclusive');
    expect(shareGate('failures', [0, 0], [1, 2]).needs_more).toBeGreaterThan(0);
    const low = [1, 1.2, 0.9, 1.1, 1.05, 0.95];
    expect(
      meanGate(
        'profit',
        low,
        low.map((value) => value + 1),
      ).verdict,
    ).toBe('better');
    expect(
      meanGate(
        'profit',
        low.map((value) => value + 1),
        low,
      ).verdict,
    ).toBe('worse');
    expect(meanGate('profit', low, low).verdict).toBe('inconclusive');
    expect(meanGate('profit', [1], [2]).verdict).toBe('inconclusive');
    expect(meanGate('profit', [1, 1, 1, 1, 1], [2, 2, 2, 2, 2]).verdict).toBe('better');
  });
});

test('the guard notices an agent that always fails, and leaves one alone that fails as before', () => {
  const usual = baselineRate(0, 20);
  expect(guard(2, 2, usual).isWorse).toBe(true);
  expect(guard(1, 20, baselineRate(4, 40)).isWorse).toBe(false);
  expect(guard(0, 0, usual).isWorse).toBe(false);
  expect(baselineRate(0, 1000)).toBeGreaterThan(0);
});
