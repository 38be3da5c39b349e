import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ExportManifest } from '../../packages/daemon/src/transfer/export-manifest.ts';
import {
  collect,
  editManifest,
  fileOf,
  type NamedBytes,
  partsOf,
  resealed,
  streamOf,
} from '../e2e/transfer/export-bytes.ts';

type LooseManifest = ExportManifest & Record<string, unknown>;

describe('a file from a stranger', () => {
  let daemon: RunningDaemon;
  let file: Buffer;
  let manifest: LooseManifest;
  let parts: NamedBytes[];
  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    const sandbox = await daemon.client.sandboxes.create({ name: 'source' });
    await sandbox.exec('echo one > /root/file; mkdir /root/d; ln /root/file /root/d/link; rm /etc/group');
    const snapshot = await sandbox.snapshot({ name: 'base' });
    file = await collect(daemon.client.snapshots.export(snapshot.id, { image: false }));
    await sandbox.destroy();
    await daemon.client.snapshots.delete(snapshot.id);
    const [described, ...rest] = partsOf(file);
    manifest = JSON.parse(described!.bytes.toString());
    parts = rest;
  });
  afterAll(() => daemon[Symbol.asyncDispose]());

  /** What the pool, the tables and the spool hold. */
  const held = async () => ({
    snapshots: await daemon.client.snapshots.list(),
    images: (await daemon.client.images.list()).map(({ name }) => name),
    trees: [...daemon.traces.snapshots(), ...daemon.traces.disks(), ...daemon.traces.memories()].filter(
      (name) => !name.startsWith('.'),
    ),
    spooled: readdirSync(join(daemon.home, 'imports')),
  });

  const refused = async (bytes: Buffer, code: string | RegExp, says: string | RegExp = ''): Promise<void> => {
    const before = await held();
    await expect(daemon.client.snapshots.import(streamOf(bytes))).rejects.toMatchObject({
      code: expect.stringMatching(code),
      message: expect.stringMatching(says),
    });
    expect(await held()).toEqual(before);
  };

  test('is taken when nothing is wrong with it', async () => {
    const { id } = await daemon.client.snapshots.import(streamOf(file));
    await daemon.client.snapshots.delete(id);
  });

  test('is refused when one bit of it is another, wherever that is', async () => {
    const places = Array.from({ length: 24 }, (_, index) => Math.floor((index * (file.length - 1)) / 23));
    for (const place of places) {
      const tampered = Buffer.from(file);
      tampered[place]! ^= 4;
      await refused(
        tampered,
        place < 15 ? 'invalid_argument' : place < 17 ? 'unsupported' : 'invalid_argument',
      );
    }
  });

  test('is refused when it is cut off, wherever that is, and when it goes on after its end', async () => {
    for (const length of [0, 1, 16, 17, 18, 48, 49, file.length / 2, file.length - 33, file.length - 1])
      await refused(file.subarray(0, length), 'invalid_argument', /damaged or cut off/);
    await refused(Buffer.concat([file, Buffer.from('x')]), 'invalid_argument', /damaged/);
  });

  test('is refused when it was changed and only the digest of the whole put right', async () => {
    for (const share of [0.2, 0.5, 0.9]) {
      const tampered = Buffer.from(file);
      tampered[Math.floor(file.length * share)]! ^= 255;
      // What is wrong depends on what the changed byte was packed from.
      await refused(resealed(tampered), /^(invalid_argument|unsafe|no_space)$/);
    }
    await refused(resealed(Buffer.concat([file.subarray(0, -60), Buffer.alloc(32)])), 'invalid_argument');
  });

  test('is refused when it is something else, or of a later form, by what it is', async () => {
    await refused(execFileSync('tar', ['-cC', daemon.home, 'token']), 'invalid_argument', /not a file that/);
    await refused(Buffer.alloc(20 * 1024 ** 2), 'invalid_argument', /not a file that/);
    await refused(
      Buffer.concat([Buffer.from('coppice-export 3\n'), file.subarray(17)]),
      'unsupported',
      /form/,
    );
  });

  test.each<[string, (manifest: LooseManifest) => unknown, string?]>([
    ['a key that nobody knows', (it) => Object.assign(it, { hooks: { start: 'sh' } }), 'hooks'],
    ['a name that is a path', (it) => Object.assign(it, { name: '../../etc' }), 'name'],
    ['a sandbox that is a path', (it) => Object.assign(it, { sandbox_name: 'a/b' }), 'sandbox_name'],
    ['an image name that is a path', (it) => Object.assign(it.image, { name: '../img' }), 'image.name'],
    ['a digest that is none', (it) => Object.assign(it.image, { digest: 'sha256:../..' }), 'image.digest'],
    ['limits beyond all bounds', (it) => Object.assign(it.limits, { memory_mb: 1e15 }), 'limits.memory_mb'],
    ['a driver that nobody knows', (it) => Object.assign(it, { driver: 'none' }), 'driver'],
    ['a variable that is none', (it) => Object.assign(it, { env: { 'A B': 'x' } }), 'env'],
    ['parts that come twice', (it) => it.parts.push('disk'), 'order'],
    ['no disk', (it) => it.parts.splice(0), 'disk'],
    ['memory that is not in it', (it) => Object.assign(it, { kind: 'checkpoint' }), 'memory'],
    ['something else than an object', (it) => Object.assign(it, { tags: 'all' }), 'tags'],
  ])('whose manifest has %s is refused', async (_, edit, says) => {
    await refused(await editManifest(file, (it) => edit(it as LooseManifest)), 'invalid_argument', says);
  });

  test('whose parts are not those that its manifest lists is refused', async () => {
    const [disk] = parts;
    const wrong = /does not hold what its manifest says|damaged/;
    await refused(await fileOf(manifest, []), 'invalid_argument', wrong);
    await refused(await fileOf(manifest, [disk!, disk!]), 'invalid_argument', wrong);
    await refused(
      await fileOf(manifest, [{ name: '../disk', bytes: disk!.bytes }]),
      'invalid_argument',
      wrong,
    );
    await refused(
      await fileOf({ ...manifest, parts: ['image', 'disk'] }, [disk!]),
      'invalid_argument',
      wrong,
    );
  });

  /** Of the form that native/parcel/parcel.h describes. */
  const attributes = Buffer.alloc(27);
  const tree = (...records: Buffer[]): Buffer =>
    Buffer.concat([Buffer.from('CPTREE1\nR'), attributes, ...records, Buffer.from('E')]);
  const named = (kind: string, name: string): Buffer =>
    Buffer.concat([Buffer.from(kind), Buffer.from([name.length]), Buffer.from(name)]);
  const size = (value: number): Buffer => {
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64LE(BigInt(value));
    return bytes;
  };

  test('whose disk leaves its tree, holds a device or is not well formed is refused, with every digest right', async () => {
    const withDisk = (bytes: Buffer) => fileOf(manifest, [{ name: 'disk', bytes }]);
    const empty = Buffer.concat([attributes, size(0), size(0), size(0)]);
    await refused(await withDisk(tree(named('F', '../escape'), empty)), 'unsafe', /name/);
    await refused(await withDisk(tree(named('F', '..'), empty)), 'unsafe', /name/);
    await refused(await withDisk(tree(named('B', 'sda'), attributes)), 'invalid_argument', /unknown kind/);
    await refused(await withDisk(Buffer.from('no tree')), 'invalid_argument');
    const taken = await daemon.client.snapshots.import(streamOf(await withDisk(tree())));
    await daemon.client.snapshots.delete(taken.id);
  });

  const symlink = (name: string, target: string): Buffer =>
    Buffer.concat([named('L', name), attributes, Buffer.from([target.length, 0]), Buffer.from(target)]);

  test.each(['proc', 'sys', 'dev', 'run'])(
    'whose disk has a link at /%s, where sandboxes have something mounted, is refused',
    async (place) => {
      const disk = { name: 'disk', bytes: tree(symlink(place, '/etc')) };
      await refused(await fileOf(manifest, [disk]), 'unsafe', `/${place} in it is no directory`);
      const linked = Buffer.from(attributes);
      linked[0] = 1;
      // The same as another name of a link that came before.
      const other = Buffer.concat([named('L', 'a'), linked, Buffer.from([4, 0]), Buffer.from('/etc')]);
      const bytes = tree(other, named('H', place), Buffer.alloc(4));
      await refused(await fileOf(manifest, [{ name: 'disk', bytes }]), 'unsafe', `/${place} in it`);
    },
  );

  test.each(['run', 'tmp', 'workspace'])('whose image has a link at /%s is refused', async (place) => {
    const digest = `sha256:${'0'.repeat(64)}`;
    const other = { ...manifest, image: { name: 'other', digest }, parts: ['image', 'disk'] };
    const image = { name: 'image', bytes: tree(symlink(place, '/etc')) };
    await refused(await fileOf(other, [image, ...parts]), 'unsafe', `/${place} in it is no directory`);
  });

  test('that brings another image under a digest that is not its own is refused, and no image is added', async () => {
    const digest = `sha256:${'0'.repeat(64)}`;
    const other = { ...manifest, image: { name: 'other', digest }, parts: ['image', 'disk'] };
    const image = { name: 'image', bytes: tree(named('D', 'etc'), attributes, Buffer.from('U')) };
    await refused(await fileOf(other, [image, ...parts]), 'invalid_argument', /digest/);
  });

  test('whose image has a path that is too long is refused, and leaves nothing', async () => {
    const digest = `sha256:${'0'.repeat(64)}`;
    const other = { ...manifest, image: { name: 'other', digest }, parts: ['image', 'disk'] };
    const name = 'n'.repeat(200);
    const down = Array.from({ length: 100 }, () => Buffer.concat([named('D', name), attributes]));
    const image = { name: 'image', bytes: tree(...down, Buffer.alloc(100, 'U')) };
    await refused(await fileOf(other, [image, ...parts]), 'unsupported', /longer than 3000 bytes/);
    const images = readdirSync(join(daemon.home, 'images'));
    expect(images.filter((entry) => entry.startsWith('.'))).toEqual([]);
    await daemon.restart();
  });

  test('whose manifest has too many values is refused before it is parsed', async () => {
    const many = { ...manifest, x: new Array(5_000_000).fill([]) };
    await refused(await fileOf(many, parts), 'invalid_argument', /more than 20000 values/);
  });

  test('that is small and would unpack to more than there is room for is refused without being written', async () => {
    const claimed = 2 ** 50;
    const bomb = Buffer.concat([
      attributes,
      size(claimed),
      size(0),
      size(claimed),
      Buffer.alloc(8 * 1024 ** 2),
    ]);
    await refused(
      await fileOf(manifest, [{ name: 'disk', bytes: tree(named('F', 'bomb'), bomb) }]),
      'no_space',
      /more than/,
    );
  });

  test('that does not fit on the disk of the home leaves nothing, and the daemon goes on', async () => {
    const spool = join(daemon.home, 'imports');
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', spool]);
    try {
      const big = Buffer.concat([file.subarray(0, 17), randomBytes(1024 ** 2)]);
      await refused(big, 'no_space', /does not fit/);
    } finally {
      execFileSync('umount', [spool]);
    }
    const { id } = await daemon.client.snapshots.import(streamOf(file));
    await daemon.client.snapshots.delete(id);
  });
});
