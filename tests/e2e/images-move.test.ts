import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { zstdCompressSync } from 'node:zlib';
import {
  type LayerEntry,
  layerTar,
  registryLogin,
  registryRefusal,
  sha256Of,
  skipFor,
  TestRegistry,
} from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { entriesInside, entriesOf, failure, ImageBench, run } from './image-bench.ts';

const oddities: LayerEntry[] = [
  { name: 'odd/', type: 'directory', mode: 0o1777 },
  { name: 'odd/gone', text: 'x' },
  { name: 'odd/kept', text: 'kept', mode: 0o4711, uid: 1000, gid: 1001, mtime: new Date(1_600_000_000_000) },
  { name: 'odd/same', type: 'link', linkname: 'odd/kept' },
  { name: 'odd/link', type: 'symlink', linkname: '../../../etc/passwd', uid: 7, gid: 8 },
  { name: 'old/', type: 'directory', mode: 0o750, uid: 33, gid: 33 },
  { name: 'old/inside', text: 'x' },
];
const config = { Env: ['WORD=of the image'], Cmd: ['/bin/sh', '-c', 'echo "$WORD"'], WorkingDir: '/odd' };

let bench: ImageBench;
beforeAll(async () => {
  if (registryRefusal() === undefined) bench = await ImageBench.open();
});
afterAll(() => bench?.[Symbol.asyncDispose]());

describe('archives of images', skipFor(registryRefusal()), () => {
  test('docker save and OCI archives are recognised, from a file and from standard input, packed or not', async () => {
    const from = `oci:${await bench.layout('saved', { layers: [bench.shell, await layerTar(...oddities)], config })}`;
    await skopeoCopyAny(from, `docker-archive:${bench.path('docker.tar')}:team/saved:1`);
    await skopeoCopyAny(from, `oci-archive:${bench.path('oci.tar')}:team/layout:2`);
    const [docker, oci] = [bench.path('docker.tar'), bench.path('oci.tar')];
    expect(await bench.coppice('images', 'import', docker)).toContain('team/saved:1');
    expect(await bench.coppiceReading(oci, 'images', 'import', '-')).toContain('team/layout:2');
    const bytes = await readFile(docker);
    // As what packs in parallel writes it: more than one frame.
    const [one, other] = [bytes.subarray(0, 70_000), bytes.subarray(70_000)];
    await writeFile(
      bench.path('docker.tar.zst'),
      Buffer.concat([zstdCompressSync(one), zstdCompressSync(other)]),
    );
    expect(await bench.coppice('images', 'import', bench.path('docker.tar.zst'), 'mine')).toContain(
      'mine:latest',
    );
    await run('umoci', ['unpack', '--image', from.slice('oci:'.length), bench.path('saved-bundle')]);
    const theirs = await entriesOf(bench.path('saved-bundle/rootfs'));
    for (const name of ['team/saved:1', 'team/layout:2', 'mine']) {
      expect(await bench.coppice('run', '--image', name)).toBe('of the image');
      await using sandbox = await bench.client.sandboxes.create({ image: name });
      expect(await entriesInside(sandbox)).toEqual(theirs);
    }
  });

  test('what is exported is read by skopeo in both forms, by umoci entry by entry, and by import', async () => {
    const name = await bench.put('export/me:1', {
      layers: [bench.shell, await layerTar(...oddities), await layerTar({ name: 'odd/.wh.gone' })],
      config,
    });
    await bench.client.images.pull(name);
    const file = bench.path('exported.tar');
    await bench.coppice('images', 'export', name, '-o', file);
    for (const place of ['again', 'again-docker', 'again-bundle', 'again-docker-bundle'])
      await rm(bench.path(place), { recursive: true, force: true });
    await skopeoCopyAny(`oci-archive:${file}`, `oci:${bench.path('again')}:x`);
    await skopeoCopyAny(`docker-archive:${file}`, `oci:${bench.path('again-docker')}:x`);
    const sandbox = await bench.client.sandboxes.create({ image: name });
    const mine = await entriesInside(sandbox);
    for (const layout of ['again', 'again-docker']) {
      await run('umoci', ['unpack', '--image', `${bench.path(layout)}:x`, bench.path(`${layout}-bundle`)]);
      expect(await entriesOf(bench.path(`${layout}-bundle/rootfs`))).toEqual(mine);
    }
    const before = await bench.client.images.get(name);
    await sandbox.destroy();
    await bench.client.images.remove(name);
    expect(await bench.coppice('images', 'import', file)).toContain(name);
    expect(await bench.client.images.get(name)).toMatchObject({
      digest: before.digest,
      layers: before.layers,
      settings: before.settings,
    });
  });

  test('an image of one directory is exported as one layer', async () => {
    await bench.client.images.import(
      'plain',
      await layerTar(...oddities.slice(0, 1), { name: 'f', text: 'f' }),
    );
    await bench.coppice('images', 'export', 'plain', '-o', bench.path('plain.tar'));
    await skopeoCopyAny(`oci-archive:${bench.path('plain.tar')}`, `oci:${bench.path('plain')}:x`);
    await run('umoci', ['unpack', '--image', `${bench.path('plain')}:x`, bench.path('plain-bundle')]);
    expect(await readFile(bench.path('plain-bundle/rootfs/f'), 'utf8')).toBe('f');
  });

  test('of several images the one that is named is taken, and without a name the archive says which there are', async () => {
    const layer = await layerTar({ name: 'which', text: 'second' });
    const document = Buffer.from(
      JSON.stringify({
        architecture: process.arch === 'x64' ? 'amd64' : process.arch,
        os: 'linux',
        rootfs: { type: 'layers', diff_ids: [sha256Of(layer)] },
      }),
    );
    const images = ['first:1', 'second:2'].map((tag) => ({
      Config: 'config.json',
      RepoTags: [tag],
      Layers: ['layer/layer.tar'],
    }));
    const archive = await layerTar(
      { name: 'manifest.json', text: JSON.stringify(images) },
      { name: 'config.json', text: document },
      { name: 'real.tar', text: layer },
      { name: 'layer/layer.tar', type: 'symlink', linkname: '../real.tar' },
    );
    const error = await failure(bench.client.images.import(undefined, archive));
    expect(error).toMatchObject({ code: 'invalid_argument' });
    expect(error.hint).toContain('first:1, second:2');
    expect((await bench.client.images.import('second:2', archive)).name).toBe('second:2');
  });

  const good = async () => {
    const layer = await layerTar({ name: 'f', text: 'f' });
    const document = Buffer.from(
      JSON.stringify({ os: 'linux', rootfs: { type: 'layers', diff_ids: [sha256Of(layer)] } }),
    );
    return { layer, document };
  };
  test.each([
    ['with a layer that it does not hold', 'invalid_argument', ['missing.tar']],
    ['with a layer outside of it', 'invalid_argument', ['../../../../etc/passwd']],
    ['with a link out of it in place of a layer', 'invalid_argument', ['out.tar']],
    ['with a link to itself in place of a layer', 'invalid_argument', ['ring.tar']],
    ['with another layer than its configuration says', 'unsafe', ['other.tar']],
  ] as const)('one %s is refused, and nothing of it is left', async (_, code, layers) => {
    const { layer, document } = await good();
    const before = await bench.kept();
    const archive = await layerTar(
      { name: 'manifest.json', text: JSON.stringify([{ Config: 'c.json', RepoTags: null, Layers: layers }]) },
      { name: 'c.json', text: document },
      { name: 'layer.tar', text: layer },
      { name: 'other.tar', text: await layerTar({ name: 'other', text: 'x' }) },
      { name: 'out.tar', type: 'symlink', linkname: '/etc/passwd' },
      { name: 'ring.tar', type: 'symlink', linkname: 'ring.tar' },
    );
    expect(await failure(bench.client.images.import('bad:1', archive))).toMatchObject({ code });
    expect(await bench.kept()).toEqual(before);
  });

  test('one whose files are not what their names say is refused, and nothing of it is left', async () => {
    const layout = (
      await bench.layout('lying', { layers: [await layerTar({ name: 'f', text: 'f' })] })
    ).slice(0, -2);
    const before = await bench.kept();
    const [blob] = (await run('sh', ['-c', `ls -S ${layout}/blobs/sha256/*`])).stdout.split('\n');
    const bytes = await readFile(blob!);
    bytes[bytes.length - 1]! ^= 1;
    await writeFile(blob!, bytes);
    await run('tar', ['-C', layout, '-cf', bench.path('lying.tar'), '.']);
    const tar = await readFile(bench.path('lying.tar'));
    expect(await failure(bench.client.images.import('bad:1', tar))).toMatchObject({ code: 'unsafe' });
    expect(await failure(bench.client.images.import('bad:1', tar.subarray(0, 3000)))).toMatchObject({
      code: 'invalid_argument',
    });
    expect(await bench.kept()).toEqual(before);
  });

  test('an image that is in use is not removed, and what stands on it is named', async () => {
    const name = await bench.put('used:1', { layers: [bench.shell] });
    await using sandbox = await bench.client.sandboxes.create({ image: name, name: 'standing' });
    const snapshot = await sandbox.snapshot({ name: 'below' });
    const error = await failure(bench.client.images.remove(name));
    expect(error).toMatchObject({ code: 'in_use' });
    expect(error.message).toContain('the sandbox standing and the snapshot standing:below');
    await bench.client.snapshots.delete(snapshot.id);
  });
});

describe('a snapshot as an image', skipFor(registryRefusal()), () => {
  test('is pushed without the layers that the registry has, and shows the same in every other tool', async () => {
    const base = await bench.put('base/app:1', {
      layers: [bench.shell, await layerTar(...oddities)],
      config,
    });
    await using dev = await bench.client.sandboxes.create({
      image: base,
      name: 'dev',
      env: { TOKEN: 'a secret of the sandbox' },
    });
    const changes = [
      'rm /odd/gone',
      'rm -r /old && mkdir /old && echo fresh > /old/fresh && chmod 700 /old',
      'echo new > /odd/new && ln /odd/new /odd/second && ln -s new /odd/pointer',
      'cp /bin/sh /odd/tool && chown 5:6 /odd/tool && chmod 4755 /odd/tool',
      'mkfifo /odd/queue; head -c 3000000 /dev/urandom > /odd/big',
    ];
    expect(await dev.exec(changes.join(' && '))).toMatchObject({ exit_code: 0 });
    await dev.snapshot({ name: 'baseline' });
    const shown = await entriesInside(dev);
    await dev.exec('echo later > /odd/later');

    expect(await bench.coppice('images', 'commit', 'dev:baseline', 'team/base:1')).toContain('team/base:1');
    const target = `${bench.registry.host}/team/base:1`;
    const states: Record<string, string> = {};
    const pushed = await bench.client.images.push('team/base:1', {
      to: target,
      onLayer: ({ digest, state }) => {
        states[digest] = state;
      },
    });
    // Both layers of the base are there in another repository; its own layer and the configuration are not.
    expect(Object.values(states).sort()).toEqual(['done', 'done', 'mounted', 'mounted']);
    expect(pushed.uploaded_bytes).toBeLessThan(4_000_000);
    const again = await bench.client.images.push('team/base:1', { to: target });
    expect(again).toMatchObject({ uploaded_bytes: 0, digest: pushed.digest });

    await skopeoCopyAny(`docker://${target}`, `oci:${bench.path('pushed')}:x`);
    await run('umoci', ['unpack', '--image', `${bench.path('pushed')}:x`, bench.path('pushed-bundle')]);
    expect(await entriesOf(bench.path('pushed-bundle/rootfs'))).toEqual(shown);
    const documents = (
      await run('sh', ['-c', `cat ${bench.path('pushed')}/blobs/sha256/* | strings`], { maxBuffer: 1 << 28 })
    ).stdout;
    expect(documents).toContain('coppice images commit dev:baseline');
    expect(documents).not.toContain('a secret of the sandbox');

    const pulled = await bench.client.images.pull(target);
    expect(pulled).toMatchObject({ registry_digest: pushed.digest, settings: { working_dir: '/odd' } });
    await using back = await bench.client.sandboxes.create({ image: target });
    expect(await entriesInside(back)).toEqual(shown);
    expect(await bench.coppice('run', '--image', 'team/base:1')).toBe('of the image');
  });

  test('is run by buildah with runc, and an image that buildah makes of it comes back entry by entry', async ({
    skip,
  }) => {
    const base = await bench.put('base/build:1', { layers: [bench.shell], config });
    await using dev = await bench.client.sandboxes.create({ image: base, name: 'for-buildah' });
    await dev.exec('mkdir /made && echo ours > /made/file && chown 12:13 /made/file');
    await bench.client.images.commit({ from: 'for-buildah', name: 'team/buildah:1' });
    const source = `${bench.registry.host}/team/buildah:1`;
    await bench.client.images.push('team/buildah:1', { to: source });
    const root = bench.path('buildah');
    const buildah = (...words: string[]) =>
      run('buildah', [
        '--root',
        `${root}/root`,
        '--runroot',
        `${root}/run`,
        '--storage-driver',
        'vfs',
        ...words,
      ]);
    try {
      const pulled = await buildah('from', '--tls-verify=false', source);
      const name = pulled.stdout.trim();
      const inside = ['run', '--isolation', 'oci', '--runtime', 'runc', '--network', 'none', name, '--'];
      const probe = await buildah(...inside, '/bin/sh', '-c', 'cat /made/file').catch((error) => error);
      skip(probe instanceof Error, `runc starts nothing here: ${String(probe.stderr).slice(-200)}`);
      expect(probe.stdout).toBe('ours\n');
      await buildah(
        ...inside,
        '/bin/sh',
        '-c',
        'rm /made/file && echo theirs > /made/other && chmod 600 /made/other',
      );
      await buildah('commit', name, `oci:${root}/made:x`);
      const theirs = `${bench.registry.host}/team/theirs:1`;
      await skopeoCopyAny(`oci:${root}/made:x`, `docker://${theirs}`);
      await run('umoci', ['unpack', '--image', `${root}/made:x`, `${root}/bundle`]);
      await using back = await bench.client.sandboxes.create({ image: theirs });
      expect(await entriesInside(back)).toEqual(await entriesOf(`${root}/bundle/rootfs`));
      expect((await back.exec('ls /made')).stdout).toBe('other\n');
    } finally {
      await buildah('rm', '--all').catch(() => {});
      await rm(root, { recursive: true, force: true });
    }
  });

  test('of an image of one directory has that as its lowest layer', async () => {
    await bench.client.images.import('flat', bench.shell);
    await using sandbox = await bench.client.sandboxes.create({ image: 'flat', name: 'on-flat' });
    await sandbox.exec('echo mine > /mine && rm /bin/cat || true');
    const image = await bench.client.images.commit({
      from: 'on-flat',
      name: 'team/flat:1',
      comment: 'a note',
    });
    expect(image.layers).toHaveLength(2);
    await using other = await bench.client.sandboxes.create({ image: 'team/flat:1' });
    expect(await entriesInside(other)).toEqual(await entriesInside(sandbox));
    // The name moves with a newer one; what stood on the older stays.
    await sandbox.exec('echo more > /more');
    const newer = await bench.client.images.commit({ from: 'on-flat', name: 'team/flat:1' });
    expect(newer.id).not.toBe(image.id);
    expect(newer.layers[0]).toBe(image.layers[0]);
    expect((await bench.client.images.get(image.id)).name).toContain('team/flat@sha256:');
  });

  test('is pushed to a registry that asks for a login, with a token for what is written', async () => {
    await using closed = await TestRegistry.start({ login: 'token' });
    await bench.client.images.import('small:1', await smallArchive());
    const target = `${closed.host}/team/small:1`;
    const refused = await failure(bench.client.images.push('small:1', { to: target }));
    expect(refused).toMatchObject({ code: 'forbidden' });
    expect(refused.hint).toContain(`coppice images login ${closed.host}`);
    await bench.client.images.login({ registry: closed.host, ...registryLogin });
    await bench.client.images.push('small:1', { to: target });
    await bench.client.images.remove('small:1');
    expect((await bench.client.images.pull(target)).name).toBe(target);
    await bench.client.images.logout(closed.host);
  });

  test('has a name with a tag, and none that Coppice keeps', async () => {
    await using sandbox = await bench.client.sandboxes.create({ image: 'flat', name: 'naming' });
    for (const name of ['host', 'debian:bookworm', 'Upper:1', `x@sha256:${'0'.repeat(64)}`])
      expect(await failure(bench.client.images.commit({ from: sandbox.id, name }))).toMatchObject({
        code: 'invalid_argument',
      });
    expect(await failure(bench.client.images.commit({ from: 'nobody', name: 'x:1' }))).toMatchObject({
      code: 'not_found',
    });
  });
});

describe('the image of this machine', skipFor(registryRefusal()), () => {
  test('is made anew beside the one that there is, and sandboxes stay on theirs', async () => {
    const first = await bench.client.images.make({ source: 'host' });
    expect(await bench.coppice('images', 'refresh')).toContain('nothing changed');
    const sandbox = await bench.client.sandboxes.create({ image: 'host' });
    // As if the machine had had other programs then.
    const file = join(bench.daemon.home, 'images', first.id, 'image.json');
    const record = JSON.parse(await readFile(file, 'utf8'));
    await writeFile(file, JSON.stringify({ ...record, digest: 'sha256-meta:another' }));
    const second = await bench.client.images.make({ source: 'host', refresh: true });
    expect(second.id).not.toBe(first.id);
    expect(second).toMatchObject({ name: 'host', digest: record.digest });
    expect(await bench.client.images.get(first.id)).toMatchObject({ used_by: [sandbox.id] });
    expect((await sandbox.exec('id -u')).stdout).toBe('0\n');
    await using other = await bench.client.sandboxes.create({ image: 'host' });
    expect(await bench.client.images.get('host')).toMatchObject({ id: second.id, used_by: [other.id] });
    const pruned = async (): Promise<string[]> =>
      (await bench.client.images.prune()).removed.map(({ id }) => id);
    expect(await pruned()).not.toContain(first.id);
    await sandbox.destroy();
    expect(await pruned()).toEqual([first.id]);
    expect(
      await failure(bench.client.images.make({ source: '/tmp', name: 'x', refresh: true })),
    ).toMatchObject({
      code: 'invalid_argument',
    });
  });
});

const smallArchive = async (): Promise<Buffer> => {
  const directory = bench.path('small');
  await bench.layout('small', { layers: [await layerTar({ name: 'f', text: 'f' })] });
  await run('tar', ['-C', directory, '-cf', `${directory}.tar`, '.']);
  return readFile(`${directory}.tar`);
};

/** Into forms that cannot keep every digest. */
const skopeoCopyAny = async (from: string, to: string): Promise<void> => {
  await run('skopeo', [
    'copy',
    '--quiet',
    '--insecure-policy',
    '--src-tls-verify=false',
    '--dest-tls-verify=false',
    from,
    to,
  ]);
};
