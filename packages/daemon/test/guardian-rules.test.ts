import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CoppiceError, type GuardianRule, guardianFileSchema, type RunEvent } from '@coppice/protocol';
import { describe, expect, test } from 'vitest';
import { readConfig } from '../src/config/config.ts';
import type { RunRecord } from '../src/db/run-table.ts';
import { RulesFile } from '../src/guardian/guardian-file.ts';
import { Judge } from '../src/guardian/judge.ts';
import { RuleFold } from '../src/guardian/rule-fold.ts';
import { mayRestart } from '../src/health/restart-policy.ts';
import { pulseOf } from '../src/health/run-pulse.ts';

let seq = 0;
const event = (type: string, data: object, atMs = 0): RunEvent => {
  seq += 1;
  const common = { seq, run_id: 'run', source: 'agent', turn: 1, at: new Date(atMs).toISOString() };
  return { ...common, type, data } as unknown as RunEvent;
};
const body = (text: string) => ({ text, bytes: text.length, ref: null });
const tool = (name: string, input: string) =>
  event('agent.tool_use', { call_id: '1', tool: name, kind: 'execute', title: name, input: body(input) });
const result = (ok: boolean) => event('agent.tool_result', { call_id: '1', tool: 'x', ok, output: body('') });
const edited = (path: string) =>
  event('agent.file_edited', { path, change: 'modified', added: 1, removed: 0, diff: body('') });

const rule = (when: object, action = 'remind'): GuardianRule =>
  guardianFileSchema.parse({ rules: [{ name: 'it', when, action }] }).rules[0]!;
const findings = (when: object, events: readonly RunEvent[]) => {
  const fold = new RuleFold([rule(when)]);
  return events.flatMap((each) => fold.feed(each)).length;
};

describe('a rule of the guardian', () => {
  test('sees the same call again and again, and not calls that differ', () => {
    const same = Array.from({ length: 8 }, () => tool('bash', 'ls'));
    expect(findings({ kind: 'loop', times: 4 }, same)).toBe(2);
    const varied = Array.from({ length: 20 }, (_, index) => tool('bash', `ls ${index % 2}`));
    expect(findings({ kind: 'loop', times: 4 }, varied)).toBe(0);
  });

  test('sees forbidden paths however they are written', () => {
    const when = { kind: 'forbidden_path', paths: ['secrets/**', '/etc/**'] };
    for (const path of [
      'secrets/a',
      '/workspace/secrets/a',
      'x/../secrets/a',
      './secrets/b/c',
      '/etc/passwd',
      '../etc/passwd',
    ])
      expect(findings(when, [edited(path)]), path).toBe(1);
    for (const path of ['src/secrets.ts', '/workspace/etc/x'])
      expect(findings(when, [edited(path)]), path).toBe(0);
  });

  test('sees hidden files, and is done in good time whatever path an agent names', () => {
    const when = { kind: 'forbidden_path', paths: ['secrets/**', '**/*key*secret*token*'] };
    for (const path of ['secrets/.env', '.config/.key-secret-token'])
      expect(findings(when, [edited(path)]), path).toBe(1);
    const slow = edited(`${'keysecret'.repeat(450)}/x`);
    expect(
      findings(
        when,
        Array.from({ length: 20 }, () => slow),
      ),
    ).toBe(0);
  });

  test('sees edits that have nothing to do with the task', () => {
    const when = { kind: 'drift', paths: ['src/**', 'README.md'] };
    expect(findings(when, [edited('src/a.ts'), edited('README.md')])).toBe(0);
    expect(findings(when, [edited('infra/a.tf'), edited('src/../infra/b.tf')])).toBe(2);
  });

  test('sees a forbidden command through white space, and behind a long text', () => {
    const when = { kind: 'forbidden_command', commands: ['rm -rf /', 'git push --force'] };
    expect(findings(when, [tool('bash', '{"command":"rm   -rf\\t/"}')])).toBe(1);
    expect(findings(when, [tool('bash', 'rm   -rf\n/')])).toBe(1);
    const fold = new RuleFold([rule(when)], () => `${'x'.repeat(100_000)} git push --force`);
    expect(fold.feed(tool('bash', 'xxxx'))).toHaveLength(1);
  });

  test('counts failures among the last calls, cost once, and time also where nothing happens', () => {
    const errors = { kind: 'error_rate', errors: 3, of: 4 };
    expect(findings(errors, [false, true, false, true, false].map(result))).toBe(0);
    expect(findings(errors, [false, true, false, true, false, false].map(result))).toBe(1);
    const usage = () => event('usage.call', { cost_micros: 600_000 });
    expect(findings({ kind: 'cost', usd: 1 }, [usage(), usage(), usage()])).toBe(1);
    const fold = new RuleFold([rule({ kind: 'time', minutes: 2 })]);
    expect(
      fold.feed(event('run.state', { from: 'creating', to: 'running', reason: '', outcome: null }, 0)),
    ).toEqual([]);
    expect(fold.tick(119_000)).toEqual([]);
    expect(fold.tick(121_000)).toHaveLength(1);
    expect(fold.tick(500_000)).toEqual([]);
  });

  test('in a file that is wrong is named, and the last good ones hold', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'coppice-rules-'));
    try {
      const path = join(directory, 'guardian.json');
      const file = new RulesFile(path);
      expect(file.read()).toEqual({ rules: [] });
      await writeFile(path, JSON.stringify({ rules: [rule({ kind: 'loop' })] }));
      expect(file.read().rules).toHaveLength(1);
      await writeFile(path, '{"rules":[{"name":"x","when":{"kind":"magic"},"action":"stop"}]}');
      expect(file.trouble).toMatch(/guardian\.json: rules\.0\.when/);
      expect(file.read().rules).toHaveLength(1);
      await rm(path);
      expect(file.read().rules).toEqual([]);
      expect(file.trouble).toBeNull();
    } finally {
      await rm(directory, { recursive: true });
    }
  });
});

describe('the judge', () => {
  const run = { id: 'run_00000000', spec: { task: 'Add dark mode' } } as unknown as RunRecord;
  const judgeBy = (answer: () => Promise<string>) => {
    const judge = new Judge({ trajectory: () => [tool('bash', 'ls')] });
    judge.askBy(answer);
    return judge;
  };

  test('that cannot be asked, or gives no verdict, is unavailable and never aligned', async () => {
    expect(await judgeBy(async () => '{}').score(run, undefined)).toMatchObject({
      status: 'unavailable',
      score: null,
    });
    const broken = judgeBy(async () => {
      throw new CoppiceError('unavailable', 'no upstream');
    });
    expect(await broken.score(run, 'm')).toEqual({
      status: 'unavailable',
      score: null,
      reason: 'no upstream',
    });
    for (const answer of [
      '',
      'aligned',
      '{"score": 2, "reason": "x"}',
      '{"score": "1"}',
      '{"reason":"fine"}',
    ])
      expect(await judgeBy(async () => answer).score(run, 'm'), answer).toMatchObject({
        status: 'unavailable',
      });
  });

  test('scores from 0 to 1 with a reason', async () => {
    const said = 'Here it is: {"score": 0.2, "reason": "it mines coins"}';
    expect(await judgeBy(async () => said).score(run, 'm')).toEqual({
      status: 'scored',
      score: 0.2,
      reason: 'it mines coins',
    });
  });
});

describe('the health of a run', () => {
  const limits = { intervalMs: 10_000, degradedAfter: 2, failedAfter: 3, stuckMs: 60_000 };
  const at = (beatMs: number, nowMs: number, openCalls = 0, eventMs = nowMs) =>
    pulseOf({ beatMs, eventMs, openCalls }, nowMs, limits).health;

  test('goes by intervals that were missed, not by how often somebody looked', () => {
    expect(at(0, 15_000)).toBe('well');
    for (let look = 0; look < 100; look += 1) expect(at(0, 15_000)).toBe('well');
    expect(at(0, 25_000)).toBe('well');
    expect(at(0, 30_000)).toBe('degraded');
    expect(at(0, 40_000)).toBe('failed');
  });

  test('is known to have failed within 20 s by default, whenever the agent stopped to answer', async () => {
    const { run_health: settings } = (await readConfig('/nonexistent/config.json')).config;
    const intervalMs = settings.interval_s * 1000;
    const byDefault = {
      intervalMs,
      degradedAfter: settings.degraded_after,
      failedAfter: settings.failed_after,
      stuckMs: settings.stuck_s * 1000,
    };
    // A look begins a second after the last one, and takes an interval where nobody answers.
    for (let diedMs = 0; diedMs < intervalMs + 1000; diedMs += 100) {
      let beatMs = 0;
      let nowMs = 0;
      for (; nowMs <= diedMs; nowMs += 1000) beatMs = nowMs;
      while (pulseOf({ beatMs, eventMs: nowMs, openCalls: 0 }, nowMs, byDefault).health !== 'failed')
        nowMs += intervalMs + 1000;
      expect(nowMs - diedMs).toBeLessThan(20_000);
    }
  });

  test('is stuck when nothing happens, but not while a model is thinking', () => {
    expect(at(100_000, 100_000, 0, 30_000)).toBe('stuck');
    expect(at(100_000, 100_000, 1, 30_000)).toBe('well');
  });

  test('is helped by restarts within limits that are on record', () => {
    const policy = { perHour: 3, cooldownMs: 60_000 };
    const now = 10 * 3_600_000;
    expect(mayRestart([], now, policy)).toEqual({ decision: 'restart' });
    expect(mayRestart([now - 10_000], now, policy)).toEqual({ decision: 'wait', untilMs: now + 50_000 });
    expect(mayRestart([now - 300_000, now - 200_000, now - 100_000], now, policy)).toEqual({
      decision: 'escalate',
    });
    expect(mayRestart([now - 4_000_000, now - 200_000, now - 100_000], now, policy)).toEqual({
      decision: 'restart',
    });
  });
});
