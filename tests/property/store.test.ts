import { lstat, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { applyMerge, FileContent, type LayeredTree, planMerge, UpperWriter } from '@coppice/disks';
import { skipFor, whyNotMountable } from '@coppice/testkit';
import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Files, mergeFiles, sorted, withFile, withoutFile } from './file-model.ts';
import { settings } from './seed.ts';
import { engines, type OpenEngine } from './store-engines.ts';

const sizeBytes = 64 * 1024 ** 2;
const ofImage: Files = new Map([
  ['a', 'image a'],
  ['b', 'image b'],
  ['d/x', 'image x'],
]);
const attributes = { mode: 0o644, uid: 0, gid: 0, mtimeNs: 0n, extended: [] };

const pick = fc.nat(1000);
const path = fc.constantFrom('a', 'b', 'c', 'd/x', 'd/y', 'n/z');
const text = fc.constantFrom('', 'one', 'two', 'three', 'image a');
const prefer = fc.constantFrom(undefined, 'ours' as const, 'theirs' as const);

const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('write' as const), disk: pick, path, text }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('unlink' as const), disk: pick, path }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('create' as const) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('snapshot' as const), disk: pick }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('restore' as const), disk: pick, snapshot: pick }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('fork' as const), snapshot: pick }) },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('merge' as const),
      disk: pick,
      from: pick,
      base: pick,
      prefer,
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('removeDisk' as const), disk: pick }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('removeSnapshot' as const), snapshot: pick }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('reopen' as const) }) },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** A snapshot and a fork of it; a merge of what each changed by itself, and one of what both changed, which is refused. */
const opening: Step[] = [
  { kind: 'snapshot', disk: 0 },
  { kind: 'fork', snapshot: 0 },
  { kind: 'write', disk: 0, path: 'a', text: 'one' },
  { kind: 'write', disk: 1, path: 'c', text: 'two' },
  { kind: 'unlink', disk: 1, path: 'b' },
  { kind: 'merge', disk: 0, from: 1, base: 0, prefer: undefined },
  { kind: 'write', disk: 0, path: 'd/x', text: 'one' },
  { kind: 'write', disk: 1, path: 'd/x', text: 'two' },
  { kind: 'merge', disk: 0, from: 1, base: 0, prefer: undefined },
];

/** What the merges of a whole run did. */
interface Tally {
  applied: number;
  changed: number;
  refused: number;
}

class Bench {
  engine: OpenEngine;
  readonly #imageDir: string;
  readonly #tally: Tally;
  readonly #disks = new Map<string, Files>();
  readonly #snapshots = new Map<string, Files>();
  #count = 0;

  constructor(engine: OpenEngine, imageDir: string, tally: Tally) {
    this.engine = engine;
    this.#imageDir = imageDir;
    this.#tally = tally;
  }

  async run(steps: readonly Step[]): Promise<void> {
    await this.#take({ kind: 'create' });
    for (const one of steps) await this.#take(one);
    await this.#check();
  }

  async clear(): Promise<void> {
    const { disks, snapshots } = await this.engine.store.list();
    for (const id of disks) await this.engine.store.removeDisk(id);
    for (const id of snapshots) await this.engine.store.removeSnapshot(id);
  }

  /** Works on what is there; a step that has nothing to work on does nothing. */
  async #take(one: Step): Promise<void> {
    const { store } = this.engine;
    const disk = 'disk' in one ? this.#at(this.#disks, one.disk) : undefined;
    const snapshot = 'snapshot' in one ? this.#at(this.#snapshots, one.snapshot) : undefined;
    switch (one.kind) {
      case 'create': {
        const id = this.#fresh('disk');
        await store.createDisk(id, sizeBytes);
        this.#disks.set(id, ofImage);
        return;
      }
      case 'write':
        if (disk === undefined) return;
        await this.#write(disk, one.path, one.text);
        this.#disks.set(disk, withFile(this.#disks.get(disk)!, one.path, one.text));
        return;
      case 'unlink':
        if (disk === undefined || !this.#disks.get(disk)!.has(one.path)) return;
        await this.#writer(disk).remove(`/${one.path}`);
        this.#disks.set(disk, withoutFile(this.#disks.get(disk)!, one.path));
        return;
      case 'snapshot': {
        if (disk === undefined) return;
        const id = this.#fresh('snap');
        await store.snapshotDisk(disk, id);
        this.#snapshots.set(id, this.#disks.get(disk)!);
        return;
      }
      case 'restore':
        if (disk === undefined || snapshot === undefined) return;
        await store.replaceDisk(disk, snapshot, sizeBytes);
        this.#disks.set(disk, this.#snapshots.get(snapshot)!);
        return;
      case 'fork': {
        if (snapshot === undefined) return;
        const id = this.#fresh('disk');
        await store.cloneDisk(snapshot, id, sizeBytes);
        this.#disks.set(id, this.#snapshots.get(snapshot)!);
        return;
      }
      case 'merge': {
        const from = this.#at(this.#disks, one.from);
        const base = this.#at(this.#snapshots, one.base);
        if (disk !== undefined && from !== undefined && base !== undefined && disk !== from)
          await this.#merge(disk, from, base, one.prefer);
        return;
      }
      case 'removeDisk':
        if (disk === undefined) return;
        await store.removeDisk(disk);
        this.#disks.delete(disk);
        return;
      case 'removeSnapshot':
        if (snapshot === undefined) return;
        await store.removeSnapshot(snapshot);
        this.#snapshots.delete(snapshot);
        return;
      case 'reopen':
        this.engine = await this.engine.reopen();
    }
  }

  async #merge(into: string, from: string, base: string, side: 'ours' | 'theirs' | undefined): Promise<void> {
    const { store, server } = this.engine;
    const [ours, theirs] = [this.#disks.get(into)!, this.#disks.get(from)!];
    const model = mergeFiles(this.#snapshots.get(base)!, ours, theirs, side);
    const theirsId = this.#fresh('snap');
    await store.snapshotDisk(from, theirsId);
    try {
      const trees = [store.snapshotDir(base), store.diskDir(into), store.snapshotDir(theirsId)].map((dir) =>
        this.#tree(dir),
      );
      const plan = await planMerge(server, trees[0]!, trees[1]!, trees[2]!);
      const inModel = (changed: readonly { path: string }[]): string[] =>
        changed
          .map((change) => change.path.slice(1))
          .filter((name) => name !== 'd' && name !== 'n' && name !== '')
          .sort();
      expect(inModel(plan.conflicts)).toEqual(model.conflicts);
      expect(inModel(plan.changes)).toEqual(model.changes);
      const apply = applyMerge(
        server,
        plan,
        trees[2]!,
        this.#writer(into),
        side === undefined ? {} : { prefer: side },
      );
      if (plan.conflicts.length > 0 && side === undefined) {
        await expect(apply).rejects.toMatchObject({ code: 'conflict' });
        this.#tally.refused += 1;
        return;
      }
      await apply;
      this.#tally.applied += 1;
      if (model.changes.length > 0) this.#tally.changed += 1;
      this.#disks.set(into, model.merged);
      expect(sorted(await this.#read(store.diskDir(into)))).toEqual(sorted(model.merged));
    } finally {
      await store.removeSnapshot(theirsId);
    }
  }

  /** All that the store holds is what the model holds, and nothing else is there. */
  async #check(): Promise<void> {
    const { store } = this.engine;
    const held = await store.list();
    expect(held.disks.sort()).toEqual([...this.#disks.keys()].sort());
    expect(held.snapshots.sort()).toEqual([...this.#snapshots.keys()].sort());
    for (const [id, files] of this.#disks)
      expect(sorted(await this.#read(store.diskDir(id))), id).toEqual(sorted(files));
    for (const [id, files] of this.#snapshots)
      expect(sorted(await this.#read(store.snapshotDir(id))), id).toEqual(sorted(files));
  }

  async #write(disk: string, name: string, content: string): Promise<void> {
    const writer = this.#writer(disk);
    const slash = name.indexOf('/');
    if (slash > 0) await writer.makeDirectory(`/${name.slice(0, slash)}`, { ...attributes, mode: 0o755 });
    const layerDir = await mkdtemp(join(tmpdir(), 'coppice-property-content-'));
    try {
      await writeFile(join(layerDir, 'file'), content);
      const entry = { sizeBytes: Buffer.byteLength(content), allocatedBytes: 0 };
      const source = new FileContent(this.engine.server, { layerDir, path: 'file', entry });
      await writer.writeFile(`/${name}`, source, attributes);
    } finally {
      await rm(layerDir, { recursive: true });
    }
  }

  /** Looks by itself, without the code under test: the upper over the image, whiteouts hiding what is below. */
  async #read(directory: string): Promise<Files> {
    const upper = join(directory, 'upper');
    let files = ofImage;
    for (const name of (await readdir(upper, { recursive: true })) as string[]) {
      const status = await lstat(join(upper, name));
      if (status.isCharacterDevice()) files = withoutFile(files, name);
      else if (status.isFile()) files = withFile(files, name, await readFile(join(upper, name), 'utf8'));
    }
    return files;
  }

  #writer(disk: string): UpperWriter {
    return new UpperWriter(this.engine.server, this.#tree(this.engine.store.diskDir(disk)));
  }

  #tree(directory: string): LayeredTree {
    return { imageDirs: [this.#imageDir], upperDir: join(directory, 'upper') };
  }

  #at(map: ReadonlyMap<string, Files>, index: number): string | undefined {
    return [...map.keys()][index % Math.max(1, map.size)];
  }

  #fresh(kind: string): string {
    this.#count += 1;
    return `${kind}_${this.#count}`;
  }
}

const describeEngine = (name: string): void => {
  let engine: OpenEngine;
  let imageDir: string;

  beforeAll(async () => {
    imageDir = await mkdtemp(join(tmpdir(), 'coppice-property-image-'));
    await mkdir(join(imageDir, 'd'));
    for (const [file, content] of ofImage) await writeFile(join(imageDir, file), content);
    engine = await engines[name]!();
  });
  afterAll(async () => {
    await engine?.purge();
    await rm(imageDir, { recursive: true, force: true });
  });

  test('disks are what a plain model of files says, after any writes, snapshots, restores, forks, merges and removals', {
    timeout: 300_000,
  }, async () => {
    const tally: Tally = { applied: 0, changed: 0, refused: 0 };
    const numRuns = 15;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
        const bench = new Bench(engine, imageDir, tally);
        try {
          await bench.run([...opening, ...steps]);
        } finally {
          engine = bench.engine;
          await bench.clear();
        }
      }),
      settings(numRuns),
    );
    expect(tally.changed).toBeGreaterThanOrEqual(numRuns);
    expect(tally.refused).toBeGreaterThanOrEqual(numRuns);
  });
};

for (const name of Object.keys(engines)) {
  const lacking = name === 'reflink' ? whyNotMountable('xfs') : undefined;
  describe(`on ${name}`, skipFor(lacking), () => describeEngine(name));
}
