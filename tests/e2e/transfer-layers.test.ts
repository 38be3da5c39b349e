import { randomBytes } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExportProgress } from '@coppice/sdk';
import { layerTar, RunningDaemon, registryRefusal, sha256Of, skipFor } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { entriesInside, ImageBench } from './image-bench.ts';
import { runCli } from './run-cli.ts';
import {
  collect,
  editManifest,
  fileOf,
  type NamedBytes,
  partsOf,
  streamOf,
} from './transfer/export-bytes.ts';

describe('a snapshot on an image of layers', skipFor(registryRefusal()), () => {
  let bench: ImageBench;
  let into: RunningDaemon;
  let first: string;
  let second: string;
  let shown: unknown;

  /** A sandbox of the image with a change, as a snapshot. */
  const snapshotOn = async (image: string, name: string): Promise<string> => {
    await using sandbox = await bench.client.sandboxes.create({ image, name });
    await sandbox.exec('echo changed > /etc/changed; rm /big/gone');
    shown = await entriesInside(sandbox);
    return (await sandbox.snapshot({ name: 'base' })).id;
  };

  beforeAll(async () => {
    if (registryRefusal() !== undefined) return;
    bench = await ImageBench.open();
    into = await RunningDaemon.start({ image: false });
    const big = await layerTar(
      { name: 'big/', type: 'directory' },
      { name: 'big/file', text: randomBytes(2_000_000) },
      { name: 'big/gone', text: 'x' },
    );
    const small = await layerTar({ name: 'small/file', text: 'small', uid: 5 }, { name: 'big/.wh.file' });
    first = await snapshotOn(await bench.put('moved/app:1', { layers: [bench.shell, big] }), 'first');
    second = await snapshotOn(
      await bench.put('moved/app:2', { layers: [bench.shell, big, small] }),
      'second',
    );
  });
  afterAll(async () => {
    await into?.[Symbol.asyncDispose]();
    await bench?.[Symbol.asyncDispose]();
  });

  /** What a refusal must leave as it was. */
  const held = async (daemon: RunningDaemon) => ({
    snapshots: await daemon.client.snapshots.list(),
    images: await daemon.client.images.list(),
    layers: readdirSync(join(daemon.home, 'layers')).sort(),
    blobs: readdirSync(daemon.home).includes('blobs') ? readdirSync(join(daemon.home, 'blobs')).sort() : [],
    spooled: readdirSync(join(daemon.home, 'imports')),
  });

  test('moves with its layers, and the next one brings only those that the other side lacks', async () => {
    const whole = await collect(bench.client.snapshots.export(first));
    expect(whole.length).toBeGreaterThan(2_000_000);
    const moved = await into.client.snapshots.import(streamOf(whole));
    expect(moved).toMatchObject({ image_added: true, image: expect.stringMatching(/moved\/app@sha256:/) });

    const have = await into.client.snapshots.importContents();
    const rest = await collect(bench.client.snapshots.export(second, { have }));
    expect(rest.length).toBeLessThan(20_000);
    const next = await into.client.snapshots.import(streamOf(rest));
    expect(next.image_added).toBe(true);
    await using grown = (await into.client.snapshots.fork(next.id)).sandboxes[0]!;
    expect(await entriesInside(grown)).toEqual(shown);

    // The image is the one that it was, so that what stands on it is known by its digest on both sides.
    const [there, here] = await Promise.all([
      into.client.images.get(next.image),
      bench.client.images.get(`${bench.registry.host}/moved/app:2`),
    ]);
    expect([there.digest, there.layers]).toEqual([here.digest, here.layers]);
    const again = await collect(
      bench.client.snapshots.export(second, { have: await into.client.snapshots.importContents() }),
    );
    expect(partsOf(again).map(({ name }) => name)).toEqual(['manifest.json', 'disk']);
    expect(await into.client.snapshots.import(streamOf(again))).toMatchObject({ image_added: false });
  });

  test('is exported for where an image is by its name, and refused where that is not, by what is lacking', async () => {
    const baseImage = `${bench.registry.host}/moved/app:1`;
    const rest = await collect(bench.client.snapshots.export(second, { base_image: baseImage }));
    expect(rest.length).toBeLessThan(20_000);
    await using empty = await RunningDaemon.start({ image: false });
    const before = await held(empty);
    const { layers } = await bench.client.images.get(baseImage);
    await expect(empty.client.snapshots.import(streamOf(rest))).rejects.toMatchObject({
      code: 'not_found',
      message: expect.stringContaining(`lacks ${layers.length} layers of the image`),
      details: { lacking: expect.arrayContaining([expect.stringMatching(/^sha256:/)]) },
      hint: expect.stringContaining('without a base'),
    });
    expect(await held(empty)).toEqual(before);
    const other = await bench.put('moved/other:1', { layers: [await layerTar({ name: 'o', text: 'x' })] });
    await bench.client.images.pull(other);
    await expect(collect(bench.client.snapshots.export(second, { base_image: other }))).rejects.toMatchObject(
      {
        code: 'invalid_argument',
        message: expect.stringContaining(`shares nothing with ${other}`),
      },
    );
  });

  test('is exported by the command for what the other side lists, and says how far it is', async () => {
    await into.client.snapshots.import(bench.client.snapshots.export(first));
    const { stdout: have } = await runCli(into, 'import', '--have');
    expect(have).toMatch(/^(sha256(-meta)?:[0-9a-f]{64}\n)+$/);
    const [list, file] = [bench.path('have.txt'), bench.path('rest.coppice')];
    await writeFile(list, have);
    const said = await bench.coppiceReading(list, 'export', second, '--for', '-', '-o', file);
    expect(said).toMatch(/^wrote .*: .*files$/);
    const taken = await runCli(into, 'import', file);
    expect([taken.code, taken.stdout]).toEqual([0, expect.stringContaining('files alone')]);

    const seen: ExportProgress[] = [];
    await collect(bench.client.snapshots.export(first, { onProgress: (at) => seen.push(at) }));
    expect([...new Set(seen.map(({ stage }) => stage))]).toEqual(['image', 'files']);
    const { done_bytes: done, total_bytes: total } = seen.at(-1)!;
    expect(done).toBe(total);
    expect(done).toBeGreaterThan(2_000_000);
  });

  describe('in a file from a stranger', () => {
    let empty: RunningDaemon;
    let file: Buffer;
    let parts: NamedBytes[];
    let manifest: Record<string, unknown>;
    beforeAll(async () => {
      empty = await RunningDaemon.start({ image: false });
      file = await collect(bench.client.snapshots.export(first));
      const [described, ...rest] = partsOf(file);
      manifest = JSON.parse(described!.bytes.toString());
      parts = rest;
    });
    afterAll(() => empty?.[Symbol.asyncDispose]());

    const refused = async (bytes: Buffer, code: string, says: RegExp): Promise<void> => {
      const before = await held(empty);
      await expect(empty.client.snapshots.import(streamOf(bytes))).rejects.toMatchObject({
        code,
        message: expect.stringMatching(says),
      });
      expect(await held(empty)).toEqual(before);
    };
    const withParts = (changed: readonly NamedBytes[]): Promise<Buffer> =>
      fileOf({ ...manifest, parts: changed.map(({ name }) => name) }, changed);
    /** A file whose image has one more layer, described as it should be. */
    const withLayer = async (tar: Buffer): Promise<Buffer> => {
      const json = (name: string) => JSON.parse(parts.find((part) => part.name === name)!.bytes.toString());
      const [image, config] = [json('image-manifest'), json('image-config')];
      const bytes = (value: unknown) => Buffer.from(JSON.stringify(value));
      config.rootfs.diff_ids.push(sha256Of(tar));
      const configBytes = bytes(config);
      image.config = { ...image.config, digest: sha256Of(configBytes), size: configBytes.length };
      const layer = {
        mediaType: 'application/vnd.oci.image.layer.v1.tar',
        digest: sha256Of(tar),
        size: tar.length,
      };
      image.layers.push(layer);
      const changed = [
        { name: 'image-manifest', bytes: bytes(image) },
        { name: 'image-config', bytes: configBytes },
        ...parts.filter(({ name }) => name.startsWith('sha256:')),
        { name: layer.digest, bytes: tar },
        ...parts.filter(({ name }) => name === 'disk'),
      ];
      const described = { name: 'app', digest: sha256Of(configBytes) };
      return fileOf({ ...manifest, image: described, parts: changed.map(({ name }) => name) }, changed);
    };

    test('is refused when a layer is another than its name says, or no part of the image', async () => {
      const layer = parts.find(({ name }) => name.startsWith('sha256:'))!;
      const swapped = parts.map((part) => (part === layer ? { ...part, bytes: Buffer.from('x') } : part));
      await refused(await withParts(swapped), 'invalid_argument', /layer is not what its name says/);
      const foreign = { name: sha256Of(Buffer.from('foreign')), bytes: Buffer.from('foreign') };
      await refused(
        await withParts([...parts.slice(0, 2), foreign, ...parts.slice(2)]),
        'invalid_argument',
        /layer that its image does not have/,
      );
    });

    test('is refused when what describes its image is of another one, or for another machine', async () => {
      await refused(
        await editManifest(file, (it) => {
          it.image.digest = sha256Of(Buffer.from('other'));
        }),
        'invalid_argument',
        /not the one that its manifest names/,
      );
      const config = parts.find(({ name }) => name === 'image-config')!;
      const other = Buffer.from(
        config.bytes.toString().replace(/"architecture":"\w+"/, '"architecture":"pdp11"'),
      );
      const changed = parts.map((part) => (part === config ? { ...part, bytes: other } : part));
      await refused(await withParts(changed), 'invalid_argument', /do not belong together/);
    });

    test('is refused when a layer climbs out or is a bomb, with every digest right, and is taken when it does not', async () => {
      const climbing = await layerTar({ name: 'ok', text: 'x' }, { name: '../../escaped', text: 'x' });
      await refused(await withLayer(climbing), 'unsafe', /escaped|climb|\.\./);
      await refused(await withLayer(randomBytes(5000)), 'invalid_argument', /./);
      const harmless = await withLayer(await layerTar({ name: 'ok', text: 'x' }));
      const { id } = await empty.client.snapshots.import(streamOf(harmless));
      await using grown = (await empty.client.snapshots.fork(id)).sandboxes[0]!;
      expect(await grown.files.readText('/ok')).toBe('x');
    });
  });
});
