import { mkdtempSync, rmSync } from 'node:fs';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { GatewayEvent } from '@coppice/protocol';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Errand } from '../src/egress/errand.ts';
import { egressPolicySchema, Policies } from '../src/egress/policies.ts';
import { Questions } from '../src/egress/questions.ts';
import { ConnectionRecords } from '../src/egress/records.ts';
import { GatewayState } from '../src/state.ts';

let directory: string;
let state: GatewayState;
let events: GatewayEvent[];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-questions-'));
  state = new GatewayState(join(directory, 'gateway.db'));
  events = [];
});
afterEach(() => {
  state.close();
  rmSync(directory, { recursive: true, force: true });
});

const open = (): Questions => {
  const emit = (event: GatewayEvent): void => void events.push(event);
  return new Questions({ state, records: new ConnectionRecords(state, Date.now, emit), now: Date.now, emit });
};
const errand = (withinMs: number): Errand => {
  const policies = new Policies(state);
  const ask = { within_ms: withinMs };
  policies.set(
    'sb_1',
    egressPolicySchema.parse({ address: '10.0.0.2', allow: [], deny: [], blocks: [], ask }),
  );
  return { policy: policies.of('10.0.0.2')!, name: 'new.example.com', port: 443, beganMs: Date.now() };
};
const answersTold = (): unknown[] =>
  events.flatMap((event) => (event.type === 'connection.answered' ? [event.answer] : []));

test('a question that nobody answers in time refuses what waits for it', async () => {
  const questions = open();
  expect(await questions.ask(new Socket(), errand(1000))).toBe(
    'nobody allowed new.example.com within 1 seconds',
  );
  expect(answersTold()).toEqual(['timeout']);
  expect(questions.list('sb_1')).toEqual([]);
});

test('a question takes 32 connections, and refuses more of them at once', async () => {
  const questions = open();
  const one = errand(600_000);
  const waiting = Array.from({ length: 32 }, () => questions.ask(new Socket(), one));
  expect(await questions.ask(new Socket(), one)).toContain('wait for an answer already');
  questions.answer({ sandbox: 'sb_1', name: one.name, port: one.port }, 'once');
  expect(new Set(await Promise.all(waiting))).toEqual(new Set([undefined]));
  expect(events.filter(({ type }) => type === 'connection.asked')).toHaveLength(1);
});

test('a question stays open for the next try of a program that gave up', async () => {
  const questions = open();
  const one = errand(600_000);
  const first = new Socket();
  const waits = questions.ask(first, one);
  first.destroy();
  expect(await waits).toContain('ended before somebody answered');
  expect(questions.list('sb_1')).toMatchObject([{ name: 'new.example.com', connections: 0 }]);
  questions.review('sb_1', undefined);
  expect(answersTold()).toEqual(['withdrawn']);
});

test('a question that was open when the gateway was killed is told as lost, once', () => {
  const killed = open();
  void killed.ask(new Socket(), errand(600_000));
  killed.close();
  open();
  expect(answersTold()).toEqual(['lost']);
  open();
  expect(answersTold()).toEqual(['lost']);
});
