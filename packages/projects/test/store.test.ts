import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { ProjectStore } from '../src/index.ts';

const directory = mkdtempSync(join(tmpdir(), 'coppice-projects-'));
const file = join(directory, 'sandbox.db');
afterEach(() => rmSync(directory, { recursive: true, force: true }));

test('the ledger only grows, takes each key once, and is all that is left of a project that was forgotten', () => {
  const store = new ProjectStore(file);
  store.projects.insert({
    id: 'prj_0000abcd',
    name: 'Secret Plans',
    description: '',
    status: 'active',
    createdMs: 1,
    activeMs: 1,
  });
  const entry = {
    atMs: 1,
    projectId: 'prj_0000abcd',
    agentId: 'one',
    runId: 'r1',
    kind: 'cost',
    micros: 2_000_000,
    tokens: 10,
    source: 'gateway',
    key: 'k1',
  } as const;
  expect(store.ledger.insert(entry, true).isNew).toBe(true);
  expect(store.ledger.insert({ ...entry, micros: 5 }, true).isNew).toBe(false);
  store.ledger.insert({
    ...entry,
    kind: 'revenue',
    micros: 11_000_000,
    tokens: 0,
    source: 'hand',
    key: 'k2',
  });
  store.ledger.insert({ ...entry, kind: 'refund', micros: 1_000_000, tokens: 0, source: 'hand', key: 'k3' });
  expect(store.sums('prj_0000abcd')).toEqual({ costMicros: 2e6, revenueMicros: 10e6, tokens: 10 });
  expect(store.sums('prj_0000abcd', 'another')).toEqual({ costMicros: 0, revenueMicros: 0, tokens: 0 });
  expect(() => store.ledger.update({ key: 'k1' }, { micros: 0 })).toThrow('the ledger only grows');
  expect(() => store.ledger.delete({ key: 'k1' })).toThrow('the ledger only grows');
  store.notes.insert({ atMs: 1, projectId: 'prj_0000abcd', text: 'learnt', source: 'hand' });
  store.forget('prj_0000abcd');
  expect(store.projects.all()).toEqual([]);
  expect(store.notes.all()).toEqual([]);
  expect(store.sums('prj_0000abcd').costMicros).toBe(2e6);
  store.close();
  expect(readFileSync(file).includes('Secret Plans')).toBe(false);
});
