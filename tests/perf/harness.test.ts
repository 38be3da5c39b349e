import { afterEach, describe, expect, it } from 'vitest';
import { interleave } from '../../bench/harness/interleave.ts';
import { plotOf } from '../../bench/harness/plot.ts';
import { mergeRows, type RowResult, type TargetResult } from '../../bench/harness/results.ts';
import { summarize } from '../../bench/harness/summary.ts';
import { resultTable } from '../../bench/harness/table.ts';
import { atLeast, atMost, isKept, isLost } from '../../bench/harness/target.ts';
import { PeerShell } from '../../bench/peers/peer-shell.ts';

const row: RowResult = {
  name: 'exec',
  title: 'exec round trip',
  seconds: 1,
  not_measured: null,
  results: [
    {
      against: 'runc',
      target: atMost(0.1),
      kept: true,
      value: 0.05,
      ours: summarize([2]),
      peer: summarize([40]),
    },
    { against: 'a <pipe>', target: atLeast(0.3), kept: false, value: 0.1 },
  ],
};

describe('the benchmark', () => {
  it('summarises samples by their median and 95th percentile', () => {
    const samples = Array.from({ length: 101 }, (_, index) => 100 - index);
    expect(summarize(samples)).toEqual({ count: 101, median: 50, p95: 95 });
    expect(() => summarize([])).toThrow('nothing was measured');
  });

  it('tells a target that is kept, missed, or lost by more than half, in both directions', () => {
    const judge = (target: ReturnType<typeof atMost>, value: number) => [
      isKept(target, value),
      isLost(target, value),
    ];
    expect([0.5, 0.7, 0.8].map((value) => judge(atMost(0.5), value))).toEqual([
      [true, false],
      [false, false],
      [false, true],
    ]);
    expect([0.3, 0.25, 0.1].map((value) => judge(atLeast(0.3), value))).toEqual([
      [true, false],
      [false, false],
      [false, true],
    ]);
  });

  it('measures in turns, throws the first round away, and stops when it is told to', async () => {
    const order: string[] = [];
    const stop = new AbortController();
    const measure = (name: string, value: number) => async (round: number) => {
      order.push(`${name}${round}`);
      return round === 0 ? 1000 : value;
    };
    const series = { a: measure('a', 1), b: measure('b', 2) };
    const measured = await interleave(series, { rounds: 2, budgetMs: 0, signal: stop.signal });
    expect(order.slice(0, 2)).toEqual(['a0', 'b0']);
    expect(order.slice(2, 4).sort()).toEqual(['a1', 'b1']);
    expect(order.slice(4).sort()).toEqual(['a2', 'b2']);
    expect([measured.a.p95, measured.b.p95]).toEqual([1, 2]);
    stop.abort(new Error('enough'));
    await expect(interleave(series, { rounds: 2, budgetMs: 0, signal: stop.signal })).rejects.toThrow(
      'enough',
    );
  });

  it('gives each round an order of its own, the same in every run', async () => {
    const orderOfRounds = async () => {
      const rounds: string[] = [];
      const measure = (name: string) => async (round: number) => {
        rounds[round] = (rounds[round] ?? '') + name;
        return 1;
      };
      const series = { a: measure('a'), b: measure('b'), c: measure('c') };
      await interleave(series, { rounds: 60, budgetMs: 60_000, signal: new AbortController().signal });
      return rounds;
    };
    const rounds = await orderOfRounds();
    expect(new Set(rounds).size).toBe(6);
    expect(await orderOfRounds()).toEqual(rounds);
  });

  it('shows each target in the table and in the plot, and rows that were not measured with their reason', () => {
    const absent: RowResult = { ...row, name: 'podman', not_measured: 'it does not start', results: [] };
    const table = resultTable([row, absent]);
    expect(table).toMatch(/exec: runc +≤ 0.1 × +0.05 × +yes +2 ms, 2 ms \(1\) +40 ms, 40 ms \(1\)/);
    expect(table).toMatch(/exec: a <pipe> +≥ 0.3 × +0.1 × +NO/);
    expect(table).toMatch(/podman +not measured +it does not start/);
    const machine = {
      cpu: 'x',
      cores: 2,
      memory_mb: 1,
      kernel: '6',
      system: 'y',
      load_before: 0,
      versions: {},
    };
    const plot = plotOf({ measured_at: '2026-01-01T00:00:00Z', machine, rows: [row, absent] });
    expect(plot).toContain('exec: a &lt;pipe&gt;');
    expect(plot.match(/<rect x=/g)).toHaveLength(2);
  });

  it('keeps earlier findings of the targets that were left out this time', () => {
    const [runc, pipe] = row.results as [TargetResult, TargetResult];
    const again: RowResult = { ...row, results: [{ ...pipe, value: 0.4 }] };
    const unasked: RowResult = { ...row, not_measured: 'not asked for', results: [] };
    const added: RowResult = { ...row, name: 'new' };
    const values = (rows: readonly RowResult[]) =>
      rows.map(({ name, not_measured, results }) => [
        name,
        not_measured,
        Object.fromEntries(results.map(({ against, value }) => [against, value])),
      ]);
    expect(values(mergeRows([row], [again, added]))).toEqual([
      ['exec', null, { runc: runc.value, 'a <pipe>': 0.4 }],
      ['new', null, { runc: runc.value, 'a <pipe>': pipe.value }],
    ]);
    expect(values(mergeRows([row], [unasked]))).toEqual(values([row]));
    expect(values(mergeRows([unasked], [unasked]))).toEqual(values([unasked]));
  });
});

describe('the shell that times peers', () => {
  let shell: PeerShell | undefined;
  afterEach(() => shell?.[Symbol.asyncDispose]());

  it('times programs one after another, to their end or to their first line, with arguments as they are given', async () => {
    shell = new PeerShell();
    expect(await shell.time(['test', "it's $HOME", '=', "it's $HOME"])).toBeGreaterThanOrEqual(0);
    expect(await shell.time(['echo', 'ready'], 'first line')).toBeGreaterThanOrEqual(0);
    expect(await shell.timeScript('echo through | grep through')).toBeGreaterThanOrEqual(0);
  });

  it('takes no failure for speed', async () => {
    shell = new PeerShell();
    await expect(shell.time(['ls', '/no/such/place'])).rejects.toThrow('/no/such/place');
    await expect(shell.time(['true'], 'first line')).rejects.toThrow('failed');
    await expect(shell.time(['sh', '-c', 'echo ready; exit 3'], 'first line')).rejects.toThrow('failed');
    expect(await shell.time(['true'])).toBeGreaterThanOrEqual(0);
  });
});
