import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { networkPolicySchema } from '@coppice/protocol';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { migrations } from '../src/db/migrations.ts';
import { openDatabase } from '../src/db/open-database.ts';
import type { SandboxRecord } from '../src/db/sandbox-table.ts';
import { State } from '../src/db/state.ts';

let directory: string;
let state: State;

const record: SandboxRecord = {
  id: 'sb_one',
  name: 'one',
  state: 'running',
  failure: null,
  imageId: 'img_one',
  imageName: 'tiny',
  driver: 'container',
  cpus: 1,
  memoryMb: 64,
  diskMb: 64,
  pids: 64,
  env: { A: 'b' },
  labels: {},
  network: networkPolicySchema.parse({}),
  address: null,
  hostname: 'one',
  idleTimeoutS: null,
  idleAction: 'pause',
  maxLifetimeS: null,
  mounts: [],
  project: 'default',
  owner: null,
  runId: null,
  parentSnapshotId: null,
  parentSandboxId: null,
  baseSnapshotId: 'sn_old',
  pauseKeep: null,
  createdAtMs: 1,
  startedAtMs: null,
  activeAtMs: 1,
  lifetimeWarned: false,
};

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-table-'));
  state = new State(openDatabase(join(directory, 'coppice.db'), join(directory, 'backup.db')));
  state.sandboxes.insert(record);
});
afterAll(() => {
  state.close();
  rmSync(directory, { recursive: true });
});

test('a sandbox is read as it was last written, however it was changed', () => {
  expect(state.sandboxes.byId('sb_one')).toEqual(record);
  state.sandboxes.update('sb_one', { state: 'stopped' });
  expect(state.sandboxes.byId('sb_one')?.state).toBe('stopped');
  state.sandboxes.rebase('sn_old', 'sn_new');
  expect(state.sandboxes.byId('sb_one')?.baseSnapshotId).toBe('sn_new');
  state.sandboxes.delete('sb_one');
  expect(state.sandboxes.byId('sb_one')).toBeUndefined();
  state.sandboxes.insert(record);
  expect(state.sandboxes.byId('sb_one')).toEqual(record);
});

test('what a transaction did that was undone is not read afterwards', () => {
  state.sandboxes.byId('sb_one');
  expect(() =>
    state.transaction(() => {
      state.sandboxes.update('sb_one', { name: 'two' });
      expect(state.sandboxes.byId('sb_one')?.name).toBe('two');
      throw new Error('undone');
    }),
  ).toThrow('undone');
  expect(state.sandboxes.byId('sb_one')?.name).toBe('one');
});

test('a sandbox of an earlier version keeps its workspace directory, as a mount', () => {
  const file = join(directory, 'earlier.db');
  const earlier = new DatabaseSync(file);
  const before = migrations.findIndex((sql) => sql.includes('DROP COLUMN workspace_identity'));
  for (const sql of migrations.slice(0, before)) earlier.exec(sql);
  earlier.exec(`PRAGMA user_version = ${before}`);
  earlier.exec(`INSERT INTO sandboxes (id, name, state, image_id, image_name, driver, cpus, memory_mb, disk_mb, pids, env, labels,
    network, hostname, idle_action, created_at_ms, active_at_ms, lifetime_warned, workspace, workspace_identity)
    VALUES ('sb_with', 'with', 'stopped', 'i', 'i', 'container', 1, 64, 64, 64, '{}', '{}', '{}', 'with', 'pause', 1, 1, 0, '/srv/x', '1:2:3'),
      ('sb_without', 'without', 'stopped', 'i', 'i', 'container', 1, 64, 64, 64, '{}', '{}', '{}', 'x', 'pause', 1, 1, 0, NULL, NULL)`);
  earlier.close();
  const now = new State(openDatabase(file, join(directory, 'earlier-backup.db')));
  expect(now.sandboxes.byId('sb_with')?.mounts).toEqual([
    { hostPath: '/srv/x', guestPath: '/workspace', readOnly: false, identity: '1:2:3' },
  ]);
  expect(now.sandboxes.byId('sb_without')?.mounts).toEqual([]);
  now.close();
});
