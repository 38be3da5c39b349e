import { CoppiceError } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Files, sorted, withFile, withoutFile } from './file-model.ts';
import { LifecycleModel } from './lifecycle-model.ts';
import { settings } from './seed.ts';

const place = '/root/place';
const mostSandboxes = 5;
const undosKept = 2;

const pick = fc.nat(1000);
const path = fc.constantFrom('a', 'b', 'd/x');
const text = fc.constantFrom('one', 'two', 'three');
const prefer = fc.constantFrom(undefined, undefined, 'ours' as const, 'theirs' as const);
const kind = <const T extends string>(name: T) => fc.constant(name);

const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ kind: kind('write'), sandbox: pick, path, text }) },
  { weight: 2, arbitrary: fc.record({ kind: kind('unlink'), sandbox: pick, path }) },
  { weight: 1, arbitrary: fc.record({ kind: kind('create') }) },
  { weight: 2, arbitrary: fc.record({ kind: kind('stop'), sandbox: pick }) },
  { weight: 2, arbitrary: fc.record({ kind: kind('start'), sandbox: pick }) },
  { weight: 2, arbitrary: fc.record({ kind: kind('snapshot'), sandbox: pick }) },
  {
    weight: 4,
    arbitrary: fc.record({ kind: kind('restore'), sandbox: pick, snapshot: pick, discard: fc.boolean() }),
  },
  { weight: 2, arbitrary: fc.record({ kind: kind('fork'), sandbox: pick }) },
  { weight: 1, arbitrary: fc.record({ kind: kind('forkSnapshot'), snapshot: pick }) },
  { weight: 5, arbitrary: fc.record({ kind: kind('merge'), sandbox: pick, from: pick, prefer }) },
  { weight: 1, arbitrary: fc.record({ kind: kind('delete'), snapshot: pick }) },
  { weight: 1, arbitrary: fc.record({ kind: kind('destroy'), sandbox: pick }) },
  { weight: 1, arbitrary: fc.record({ kind: kind('restart') }) },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** A fork; a merge of what each side changed by itself; and one of what both changed, which is refused. */
const opening: Step[] = [
  { kind: 'create' },
  { kind: 'write', sandbox: 0, path: 'a', text: 'one' },
  { kind: 'write', sandbox: 0, path: 'b', text: 'one' },
  { kind: 'fork', sandbox: 0 },
  { kind: 'write', sandbox: 0, path: 'a', text: 'two' },
  { kind: 'write', sandbox: 1, path: 'd/x', text: 'three' },
  { kind: 'unlink', sandbox: 1, path: 'b' },
  { kind: 'merge', sandbox: 0, from: 1, prefer: undefined },
  { kind: 'write', sandbox: 1, path: 'a', text: 'three' },
  { kind: 'merge', sandbox: 0, from: 1, prefer: undefined },
];

interface Tally {
  changed: number;
  refused: number;
}

class Walk {
  readonly #daemon: RunningDaemon;
  readonly #tally: Tally;
  readonly #model = new LifecycleModel(undosKept);

  constructor(daemon: RunningDaemon, tally: Tally) {
    this.#daemon = daemon;
    this.#tally = tally;
  }

  async run(steps: readonly Step[]): Promise<void> {
    for (const one of steps) await this.#take(one);
    await this.#check();
  }

  /** A step that has nothing to work on does nothing; one that the state forbids must be refused. */
  async #take(one: Step): Promise<void> {
    const model = this.#model;
    const { client } = this.#daemon;
    const id = 'sandbox' in one ? at(model.sandboxes, one.sandbox) : undefined;
    const snapshotId = 'snapshot' in one ? at(model.snapshots, one.snapshot) : undefined;
    const isFull = model.sandboxes.size >= mostSandboxes;
    switch (one.kind) {
      case 'create':
        if (!isFull) model.created((await client.sandboxes.create()).id);
        return;
      case 'forkSnapshot':
        if (isFull || snapshotId === undefined) return;
        model.forked(snapshotId, (await client.snapshots.fork(snapshotId)).sandboxes[0]!.id);
        return;
      case 'delete':
        if (snapshotId === undefined) return;
        if (model.isNeeded(snapshotId)) return refused(client.snapshots.delete(snapshotId), 'in_use');
        await client.snapshots.delete(snapshotId);
        model.deleted(snapshotId);
        return;
      case 'restart':
        await this.#daemon.restart();
        return;
      default:
        if (id !== undefined) await this.#takeOn(id, client.sandboxes.at(id), one, snapshotId);
    }
  }

  async #takeOn(
    id: string,
    sandbox: Sandbox,
    one: Exclude<Step, { kind: 'create' | 'forkSnapshot' | 'delete' | 'restart' }>,
    snapshotId: string | undefined,
  ): Promise<void> {
    const model = this.#model;
    const record = model.sandboxes.get(id)!;
    switch (one.kind) {
      case 'write': {
        const write = sandbox.files.write(`${place}/${one.path}`, `${one.text}\n`);
        if (!record.running) return refused(write, 'wrong_state');
        await write;
        record.files = withFile(record.files, one.path, one.text);
        return;
      }
      case 'unlink': {
        const removal = sandbox.files.remove(`${place}/${one.path}`);
        if (!record.running) return refused(removal, 'wrong_state');
        if (!record.files.has(one.path)) return refused(removal, 'not_found');
        await removal;
        record.files = withoutFile(record.files, one.path);
        return;
      }
      case 'stop':
        await sandbox.stop({ grace_s: 0 });
        record.running = false;
        return;
      case 'start':
        await sandbox.start();
        record.running = true;
        return;
      case 'snapshot':
        model.snapshotted(id, (await sandbox.snapshot()).id);
        return;
      case 'restore': {
        if (snapshotId === undefined) return;
        if (!model.mayRestore(id, snapshotId)) return refused(sandbox.restore(snapshotId), 'not_found');
        const { undo_snapshot_id: undo } = await sandbox.restore(snapshotId, { discard: one.discard });
        expect(undo === null).toBe(one.discard);
        model.restored(id, snapshotId, undo);
        return;
      }
      case 'fork': {
        if (model.sandboxes.size >= mostSandboxes) return;
        const { snapshot_id: taken, sandboxes } = await sandbox.fork();
        model.snapshotted(id, taken, { automatic: true });
        model.forked(taken, sandboxes[0]!.id);
        return;
      }
      case 'merge': {
        const from = at(model.sandboxes, one.from);
        if (from !== undefined) await this.#merge(id, from, one.prefer);
        return;
      }
      case 'destroy':
        await sandbox.destroy();
        model.destroyed(id);
    }
  }

  async #merge(id: string, from: string, side: 'ours' | 'theirs' | undefined): Promise<void> {
    const model = this.#model;
    const sandbox = this.#daemon.client.sandboxes.at(id);
    const merging = sandbox.merge(from, side === undefined ? {} : { prefer: side });
    if (from === id) return refused(merging, 'invalid_argument');
    const expected = model.merge(id, from, side);
    if (expected.conflicts.length > 0 && side === undefined) {
      this.#tally.refused += 1;
      return refused(merging, 'conflict');
    }
    const merged = await merging;
    expect(merged.base_snapshot_id).toBe(model.commonAncestor(id, from));
    expect(filesAmong(merged.changes)).toEqual(expected.changes);
    expect(filesAmong(merged.conflicts)).toEqual(expected.conflicts);
    const { undo_snapshot_id: undo } = merged;
    const added = (await this.#daemon.client.snapshots.list()).filter((one) => !model.snapshots.has(one.id));
    const points = added.filter((one) => one.id !== undo);
    expect(points).toHaveLength(1);
    // Directories are no part of the model, so that a merge may have more to do than it says.
    model.merged(id, from, points[0]!.id, undo, expected.merged);
    if (expected.changes.length > 0) this.#tally.changed += 1;
  }

  /** Everything the daemon says and every file in every sandbox is what the model says. */
  async #check(): Promise<void> {
    const { client, traces } = this.#daemon;
    const model = this.#model;
    const states = (await client.sandboxes.list()).map(({ id, state }) => [id, state]);
    const running = [...model.sandboxes].filter(([, record]) => record.running).map(([id]) => id);
    expect(Object.fromEntries(states)).toEqual(
      Object.fromEntries(
        [...model.sandboxes].map(([id, record]) => [id, record.running ? 'running' : 'stopped']),
      ),
    );
    expect(traces.machines()).toEqual(running.sort());
    const snapshots = (await client.snapshots.list()).map(({ id, parent_id: parent }) => [id, parent]);
    expect(Object.fromEntries(snapshots)).toEqual(
      Object.fromEntries([...model.snapshots].map(([id, { parent }]) => [id, parent])),
    );
    for (const [id, record] of model.sandboxes) {
      const sandbox = client.sandboxes.at(id);
      if (!record.running) await sandbox.start();
      expect(sorted(await filesIn(sandbox)), id).toEqual(sorted(record.files));
    }
  }

  async clear(): Promise<void> {
    const { client } = this.#daemon;
    for (const { id } of await client.sandboxes.list()) await client.sandboxes.at(id).destroy();
    // Where merges started goes by itself, with the last that could start there.
    for (let left = await client.snapshots.list(); left.length > 0; left = await client.snapshots.list())
      for (const { id } of left)
        await client.snapshots.delete(id).catch((error: unknown) => {
          if (!(error instanceof CoppiceError) || !/in_use|not_found/.test(error.code)) throw error;
        });
  }
}

const at = (map: ReadonlyMap<string, unknown>, index: number): string | undefined =>
  [...map.keys()][index % Math.max(1, map.size)];

const refused = async (call: Promise<unknown>, code: string): Promise<void> => {
  await expect(call).rejects.toMatchObject({ code });
};

const filesAmong = (changes: readonly { readonly path: string }[]): string[] =>
  changes
    .filter((change) => change.path.startsWith(`${place}/`) && change.path !== `${place}/d`)
    .map((change) => change.path.slice(place.length + 1))
    .sort();

const filesIn = async (sandbox: Sandbox): Promise<Files> => {
  const { stdout } = await sandbox.exec(`mkdir -p ${place} && cd ${place} && grep -r '' . || true`);
  const lines = stdout.split('\n').filter(Boolean);
  return new Map(
    lines.map((line): [string, string] => [
      line.slice(2, line.indexOf(':')),
      line.slice(line.indexOf(':') + 1),
    ]),
  );
};

describe('the life of sandboxes', () => {
  let daemon: RunningDaemon;
  beforeAll(async () => {
    daemon = await RunningDaemon.start({ config: { limits: { undo_snapshots: undosKept } } });
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  test('is what a model of states, files and lineage says, after any sequence of calls', {
    timeout: 300_000,
  }, async () => {
    const tally: Tally = { changed: 0, refused: 0 };
    const numRuns = 6;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 6, maxLength: 16 }), async (steps) => {
        const walk = new Walk(daemon, tally);
        try {
          await walk.run([...opening, ...steps]);
        } finally {
          await walk.clear();
        }
      }),
      settings(numRuns),
    );
    expect(tally.changed).toBeGreaterThanOrEqual(numRuns);
    expect(tally.refused).toBeGreaterThanOrEqual(numRuns);
  });
});
