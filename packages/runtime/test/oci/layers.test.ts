import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { type LayerEntry, layerTar, sha256Of, treeListing, writeOciLayout } from '@coppice/testkit';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type LayerStore, layerName } from '../../src/images/layers/layer-store.ts';
import { layerProgram, openLayers } from './puller.ts';

const run = promisify(execFile);

let home: string;
let layers: LayerStore;

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'coppice-layers-'));
  layers = await openLayers(join(home, 'layers'));
});
afterEach(async () => {
  await rm(home, { recursive: true, force: true });
});

async function* once(bytes: Buffer): AsyncGenerator<Buffer> {
  yield bytes;
}

const take = async (tar: Buffer): Promise<string> => {
  const diffId = sha256Of(tar);
  await layers.ensure(diffId, () => once(tar));
  return layers.path(diffId);
};

const unpack = async (...entries: readonly LayerEntry[]): Promise<string> => take(await layerTar(...entries));

const refusal = async (tar: Buffer): Promise<{ code: string; message: string }> => {
  const error = await take(tar).then(
    () => undefined,
    (reason) => reason,
  );
  expect(error).toBeDefined();
  expect(await readdir(join(home, 'layers'))).toEqual([]);
  return error;
};

const isWhiteout = async (path: string): Promise<boolean> => {
  const found = await lstat(path);
  return found.isCharacterDevice() && found.rdev === 0;
};

const attribute = async (path: string, name: string): Promise<string> =>
  (await run('getfattr', ['--no-dereference', '--absolute-names', '--only-values', '--name', name, path]))
    .stdout;

describe('a layer', () => {
  it('keeps owners, modes, times, links, FIFOs and attributes as they were packed', async () => {
    const source = join(home, 'source');
    await mkdir(join(source, 'home/user'), { recursive: true });
    await writeFile(join(source, 'home/user/notes'), 'mine');
    await writeFile(join(source, 'tool'), 'a tool');
    await run(
      'sh',
      [
        '-c',
        [
          'chmod 4755 tool',
          'ln tool same',
          'ln -s ../../../above link',
          'mkfifo queue',
          'chown 1000:1001 home/user home/user/notes',
          'chmod 1777 home',
          'setcap cap_net_raw+ep tool',
          `setfattr -n user.note -v "two
lines" home/user`,
          'setfacl -m u:33:r home/user/notes',
          `touch -d "2020-02-02 02:02:02.123456789 UTC" tool home/user`,
          'touch -h -d "1969-12-31 23:59:58.25 UTC" link',
        ].join(' && '),
      ],
      { cwd: source },
    );
    const tar = await buffer(layerProgram.pack(source, 1 << 20));
    const path = await take(tar);
    // All but the root, which no entry names.
    const listing = async (root: string) => (await treeListing(root)).split('\n').slice(1);
    expect(await listing(path)).toEqual(await listing(source));
    expect(await attribute(join(path, 'home/user'), 'user.note')).toBe('two\nlines');
    expect((await run('getcap', [join(path, 'same')])).stdout).toContain('cap_net_raw=ep');
    expect(await buffer(layerProgram.pack(path, 1 << 20))).toEqual(tar);
  });

  it('hides what lies below in the form that an overlay inside a user namespace reads', async () => {
    const path = await unpack(
      { name: 'etc/.wh.gone' },
      { name: 'opaque/.wh..wh..opq' },
      { name: 'opaque/fresh', text: 'x' },
      { name: '.wh.anew' },
      { name: 'anew/', type: 'directory' },
      { name: 'later/', type: 'directory' },
      { name: '.wh.later' },
      { name: 'kept', text: 'x' },
      { name: '.wh.kept' },
      { name: '.wh..wh.plnk/', type: 'directory' },
    );
    expect(await isWhiteout(join(path, 'etc/gone'))).toBe(true);
    for (const name of ['opaque', 'anew', 'later'])
      expect(await attribute(join(path, name), 'user.overlay.opaque')).toBe('y');
    expect(await readFile(join(path, 'kept'), 'utf8')).toBe('x');
    expect((await readdir(path)).sort()).toEqual(['anew', 'etc', 'kept', 'later', 'opaque']);
  });

  it('remembers which directories it does not name itself', async () => {
    const tar = await layerTar(
      { name: 'a/b/c/file', text: '' },
      { name: 'a/b/', type: 'directory', mode: 0o700 },
      { name: 'x/.wh.y' },
    );
    await take(tar);
    const layer = layers.get(sha256Of(tar));
    expect(layer?.unnamed).toEqual(['', 'a', 'a/b/c', 'x']);
    expect(layer?.whiteouts).toEqual(['x']);
    expect(layer?.entries).toBe(6);
  });

  it('is unpacked once, whoever asks for it how often, and found again by the next process', async () => {
    const tar = await layerTar({ name: 'file', text: 'x' });
    let opened = 0;
    const open = () => {
      opened += 1;
      return once(gzipSync(tar));
    };
    const ids = [1, 2, 3].map(() => layers.ensure(sha256Of(tar), open));
    expect(new Set((await Promise.all(ids)).map(({ diffId }) => diffId)).size).toBe(1);
    expect(opened).toBe(1);
    await mkdir(join(home, 'layers/.building-1-half'));
    const again = await openLayers(join(home, 'layers'));
    expect(again.get(sha256Of(tar))?.files).toBe(1);
    expect(await readdir(join(home, 'layers'))).toEqual([layerName(sha256Of(tar))]);
    await again.keepOnly(new Set());
    expect(await readdir(join(home, 'layers'))).toEqual([]);
  });

  it('may be packed with zstd in many frames, some of which hold notes only, in pieces of any size', async () => {
    const tar = await layerTar({ name: 'file', text: Buffer.alloc(300_000, 'several frames ') });
    const notes = Buffer.from([0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
    const frames = [notes];
    for (let at = 0; at < tar.length; at += 10_007)
      frames.push(zstdCompressSync(tar.subarray(at, at + 10_007)), notes);
    const packed = Buffer.concat(frames);
    async function* pieces(): AsyncGenerator<Buffer> {
      for (let at = 0; at < packed.length; at += 17) yield packed.subarray(at, at + 17);
    }
    await layers.ensure(sha256Of(tar), pieces);
    expect((await stat(join(layers.path(sha256Of(tar)), 'file'))).size).toBe(300_000);
    const other = await layerTar({ name: 'other', text: 'x' });
    const damaged = zstdCompressSync(other);
    const error = await layers
      .ensure(sha256Of(other), () => once(damaged.subarray(0, -3)))
      .catch((reason) => reason);
    expect(error).toMatchObject({ code: 'invalid_argument' });
  });

  it('may end without the zeros that close a tar, and may hold nothing', async () => {
    const tar = await layerTar({ name: 'file', text: 'x' });
    const path = await take(tar.subarray(0, 1024));
    expect(await readFile(join(path, 'file'), 'utf8')).toBe('x');
    expect(await readdir(await take(Buffer.alloc(1024)))).toEqual([]);
  });
});

describe('a hostile layer harms nobody and leaves nothing', () => {
  const bare = { mode: 0o644, mtime: new Date(0) } as const;
  const directory: LayerEntry = { name: 'd/', type: 'directory' };

  it.each<[string, readonly LayerEntry[], string]>([
    ['a path that climbs', [{ name: '../outside', text: 'x' }], 'unsafe'],
    ['a path that climbs in the middle', [{ name: 'a/../../outside', text: 'x' }], 'unsafe'],
    ['a hard link that climbs', [{ name: 'a', type: 'link', linkname: '../../etc/passwd' }], 'unsafe'],
    ['a hard link to what is not in it', [{ name: 'a', type: 'link', linkname: 'etc/passwd' }], 'unsafe'],
    ['a hard link to a directory', [directory, { name: 'a', type: 'link', linkname: 'd' }], 'unsafe'],
    ['a hard link to a deletion', [{ name: '.wh.a' }, { name: 'b', type: 'link', linkname: 'a' }], 'unsafe'],
    [
      'a hard link through a link',
      [
        { name: 'l', type: 'symlink', linkname: '/etc' },
        { name: 'a', type: 'link', linkname: 'l/passwd' },
      ],
      'unsafe',
    ],
    [
      'a file below a link',
      [
        { name: 'l', type: 'symlink', linkname: '/tmp' },
        { name: 'l/escaped', text: 'x' },
      ],
      'unsafe',
    ],
    [
      'a directory in place of a link',
      [
        { name: 'l', type: 'symlink', linkname: '/tmp' },
        { name: 'l/', type: 'directory' },
      ],
      'unsafe',
    ],
    [
      'a deletion below a link',
      [{ name: 'l', type: 'symlink', linkname: '/etc' }, { name: 'l/.wh.passwd' }],
      'unsafe',
    ],
    ['a file in place of a directory', [directory, { name: 'd', text: 'x' }], 'unsafe'],
    ['a file in place of the root', [{ name: './', type: 'file', text: 'x' }], 'unsafe'],
    ['a deletion of the directory itself', [{ name: 'd/.wh..' }], 'unsafe'],
    ['a deletion of the directory above', [{ name: 'd/.wh...' }], 'unsafe'],
    ['a deletion without a name', [{ name: 'd/.wh.' }], 'unsafe'],
    ['an entry below a deletion', [{ name: '.wh.a/b', text: 'x' }], 'unsafe'],
    ['a link without a target', [{ name: 'l', type: 'symlink', linkname: '' }], 'invalid_argument'],
    ['a name that is too long', [{ name: 'n'.repeat(256), text: '' }], 'invalid_argument'],
    ['a path that is too long', [{ name: Array(620).fill('abcd').join('/'), text: '' }], 'invalid_argument'],
    ['a sparse file of GNU', [{ name: 's', text: 'x', pax: { 'GNU.sparse.major': '1' } }], 'unsupported'],
    ['a size that none can have', [{ name: 's', text: 'x', pax: { size: '-1' } }], 'invalid_argument'],
    ['an owner that none can be', [{ name: 's', text: 'x', pax: { uid: '4294967295' } }], 'invalid_argument'],
    ['a name with a NUL byte', [{ name: 's', text: 'x', pax: { path: 'a\0b' } }], 'invalid_argument'],
  ])('with %s', async (_, entries, code) => {
    const tar = await layerTar(...entries.map((entry) => ({ ...bare, ...entry })));
    expect(await refusal(tar)).toMatchObject({ code });
    expect(readFileSync('/etc/passwd', 'utf8')).toContain('root');
  });

  it('with more bytes or entries than an image may have, however small it is packed', async () => {
    layers = await openLayers(join(home, 'layers'), { maxBytes: 1 << 20, maxEntries: 50 });
    expect(await refusal(await layerTar({ name: 'bomb', text: Buffer.alloc(2 << 20) }))).toMatchObject({
      code: 'too_large',
    });
    const many = Array.from({ length: 60 }, (_, index) => ({ name: `f${index}`, text: '' }));
    expect(await refusal(await layerTar(...many))).toMatchObject({ code: 'too_large' });
    const deep = { name: Array(60).fill('d').join('/'), text: '' };
    expect(await refusal(await layerTar(deep))).toMatchObject({ code: 'too_large' });
    const tar = await layerTar({ name: 'small', text: '' });
    const padded = gzipSync(Buffer.concat([tar, Buffer.alloc(4 << 20)]));
    const error = await layers.ensure(sha256Of(tar), () => once(padded)).catch((reason) => reason);
    expect(error).toMatchObject({ code: 'too_large' });
    expect(await readdir(join(home, 'layers'))).toEqual([]);
  });

  it('that goes on long after what it is refused for: the refusal says why', async () => {
    const climbing = await layerTar({ name: '../outside', text: 'x' });
    const error = await refusal(Buffer.concat([climbing.subarray(0, 1024), Buffer.alloc(32 << 20, 7)]));
    expect(error).toMatchObject({ code: 'unsafe' });
  });

  it('with devices: they are left out, those that mean a deletion to an overlay too', async () => {
    const device = { type: 'character-device', devmajor: 0, devminor: 0 } as const;
    const path = await unpack(
      { name: 'dev/null', ...device, devmajor: 1, devminor: 3 },
      { name: 'etc/passwd', ...device },
      { name: 'kept', text: '' },
    );
    expect((await readdir(path)).sort()).toEqual(['kept']);
  });

  it('with marks of an overlay, of trust or of the kernel in its attributes: they are left out', async () => {
    const pax = {
      'SCHILY.xattr.user.overlay.opaque': 'y',
      'SCHILY.xattr.user.overlay.redirect': '/etc',
      'SCHILY.xattr.trusted.overlay.redirect': '/etc',
      'SCHILY.xattr.trusted.other': 'x',
      'SCHILY.xattr.security.selinux': 'x',
      'SCHILY.xattr.user.kept': 'x',
    };
    const path = await unpack({ name: 'd/', type: 'directory', pax });
    const { stdout } = await run('getfattr', ['--absolute-names', '--match', '-', join(path, 'd')]);
    expect(stdout.split('\n').filter((line) => line.includes('.') && !line.startsWith('#'))).toEqual([
      'user.kept',
    ]);
  });

  it('that is cut off, no tar at all, or broken in the middle', async () => {
    const tar = await layerTar({ name: 'a', text: 'x'.repeat(5000) }, { name: 'b', text: 'y' });
    const broken = Buffer.from(tar);
    broken[512 * 11 + 10]! ^= 0xff;
    for (const bytes of [
      tar.subarray(0, 2000),
      tar.subarray(0, 700),
      Buffer.from('no tar '.repeat(200)),
      broken,
    ])
      expect(await refusal(bytes)).toMatchObject({ code: 'invalid_argument' });
    expect(await refusal(gzipSync(tar).subarray(0, 60))).toMatchObject({ code: 'invalid_argument' });
  });

  it('whose bytes are anything: the program ends with an answer or a refusal, and never by a fault', async () => {
    const tar = await layerTar(
      { name: 'a/b', text: 'x' },
      { name: 'l', type: 'symlink', linkname: 'a' },
      { name: 'p', text: 'y', pax: { comment: 'z' } },
    );
    for (let round = 0; round < 60; round += 1) {
      const bytes = Buffer.from(tar);
      for (let change = 0; change <= round % 5; change += 1) {
        const at = (round * 7919 + change * 104_729) % bytes.length;
        bytes[at] = (round * 31 + change * 17) & 0xff;
      }
      const diffId = sha256Of(bytes);
      const error = await layers
        .ensure(diffId, () => once(bytes))
        .then(
          () => undefined,
          (reason: { code: string }) => reason,
        );
      if (error !== undefined)
        expect(['unsafe', 'invalid_argument', 'unsupported', 'too_large']).toContain(error.code);
    }
  });
});

describe('what a sandbox changed, as a layer', () => {
  it('cannot pass a file off as a deletion', async () => {
    const upper = join(home, 'upper');
    await mkdir(upper);
    await writeFile(join(upper, '.wh.passwd'), '');
    const error = await buffer(layerProgram.pack(upper, 1 << 20)).catch((reason) => reason);
    expect(error).toMatchObject({ code: 'unsupported' });
  });

  it('is bounded in bytes also where its files are holes', async () => {
    const upper = join(home, 'upper');
    await mkdir(upper);
    await run('truncate', ['--size=1T', join(upper, 'hole')]);
    const error = await buffer(layerProgram.pack(upper, 1 << 20)).catch((reason) => reason);
    expect(error).toMatchObject({ code: 'too_large' });
  });

  it('is unpacked by umoci to the same files, deletions applied', async () => {
    const base = await layerTar(
      { name: 'etc/', type: 'directory' },
      { name: 'etc/gone', text: 'x' },
      { name: 'etc/kept', text: 'y', uid: 5, gid: 6, mode: 0o640 },
      { name: 'old/', type: 'directory' },
      { name: 'old/inside', text: 'z' },
      { name: 'tmp/', type: 'directory', mode: 0o1777 },
    );
    const upper = join(home, 'upper');
    await run('sh', [
      '-c',
      [
        `mkdir -p ${upper}/etc ${upper}/old && cd ${upper}`,
        'mknod etc/gone c 0 0',
        'setfattr -n user.overlay.opaque -v y old',
        'echo new > old/new && ln old/new etc/linked && ln -s /etc/kept old/link',
        'echo "name with UTF-8" > "etc/ü name" && chmod 4711 "etc/ü name" && chown 1000:1000 "etc/ü name"',
        `echo long > "etc/$(printf 'n%.0s' $(seq 150))"`,
      ].join(' && '),
    ]);
    const layout = join(home, 'layout');
    await writeOciLayout(layout, 'x', { layers: [base, await buffer(layerProgram.pack(upper, 1 << 20))] });
    await run('umoci', ['unpack', '--image', `${layout}:x`, join(home, 'bundle')]);
    const theirs = join(home, 'bundle/rootfs');
    const expected = join(home, 'expected');
    await run('cp', ['--archive', await take(base), expected]);
    await rm(join(expected, 'etc/gone'));
    await rm(join(expected, 'old'), { recursive: true });
    await run('cp', ['--archive', `${upper}/.`, expected]);
    await rm(join(expected, 'etc/gone'), { force: true });
    const files = ['-printf', '%P %y %m %U %G %s %l %n\\n'];
    const names = async (root: string): Promise<string[]> => {
      const kinds = ['(', '-type', 'd', '-printf', '%P %y %m %U %G\\n', ')', '-o', ...files];
      return (await run('find', [root, '-mindepth', '1', ...kinds])).stdout.split('\n').sort();
    };
    expect(await names(theirs)).toEqual(await names(expected));
    expect(await readlink(join(theirs, 'old/link'))).toBe('/etc/kept');
    expect(await readdir(join(theirs, 'old'))).toEqual(['link', 'new']);
  });
});

async function buffer(chunks: AsyncIterable<Buffer>): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const chunk of chunks) parts.push(chunk);
  return Buffer.concat(parts);
}
