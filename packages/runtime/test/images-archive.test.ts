import { execFile } from 'node:child_process';
import { lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { IdSource } from '@coppice/protocol';
import { type Header, pack } from 'tar-stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ImageStore } from '../src/images/image-store.ts';

const run = promisify(execFile);

let home: string;
let directory: string;
let images: ImageStore;

const openStore = (limits: { maxBytes?: number; maxEntries?: number } = {}): Promise<ImageStore> => {
  const ids = new IdSource();
  const newId = (): string => ids.next('image');
  return ImageStore.open({
    directory,
    newId,
    now: () => new Date(),
    ...limits,
  });
};

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'coppice-images-'));
  directory = join(home, 'images');
  images = await openStore();
});
afterEach(async () => {
  await rm(home, { recursive: true, force: true });
});

type Entry = Partial<Header> & { name: string; text?: string };

async function tar(...entries: Entry[]): Promise<Buffer> {
  const packing = pack();
  for (const { text, ...header } of entries) packing.entry(header, text ?? '');
  packing.finalize();
  return buffer(packing as unknown as Readable);
}

const importing = (archive: Buffer, name = 'imported') =>
  images.importArchive(name, Readable.from([archive]));

const typical: Entry[] = [
  { name: 'usr/', type: 'directory', mode: 0o755 },
  { name: 'usr/bin/', type: 'directory', mode: 0o755 },
  { name: 'usr/bin/tool', text: 'a tool', mode: 0o4755, uid: 0, gid: 0, mtime: new Date(1_600_000_000_000) },
  { name: 'usr/bin/same', type: 'link', linkname: 'usr/bin/tool' },
  { name: 'bin', type: 'symlink', linkname: 'usr/bin' },
  { name: 'etc/alternatives/tool', type: 'symlink', linkname: '/usr/bin/tool' },
  { name: 'home/user/notes', text: 'mine', uid: 1000, gid: 1000, mode: 0o600 },
  { name: 'run/pipe', type: 'fifo', mode: 0o600 },
];

describe('an archive', () => {
  it.each([
    ['tar', (plain: Buffer) => plain],
    ['gzip', (plain: Buffer) => gzipSync(plain)],
    ['zstd', (plain: Buffer) => zstdCompressSync(plain)],
  ] as const)('is imported with its files as they were packed (%s)', async (format, compress) => {
    const image = await importing(compress(await tar(...typical)));
    expect(image).toMatchObject({
      name: 'imported',
      source: { kind: 'archive', format },
      sizeBytes: 10,
      warnings: [],
    });
    const rootfs = images.rootfs(image.id);
    const tool = await lstat(join(rootfs, 'usr/bin/tool'));
    expect([tool.mode & 0o7777, tool.uid, tool.mtimeMs, tool.nlink]).toEqual([
      0o4755, 0, 1_600_000_000_000, 2,
    ]);
    const notes = await lstat(join(rootfs, 'home/user/notes'));
    expect([notes.mode & 0o7777, notes.uid, notes.gid]).toEqual([0o600, 1000, 1000]);
    expect(await readFile(join(rootfs, 'home/user/notes'), 'utf8')).toBe('mine');
    expect(await readlink(join(rootfs, 'bin'))).toBe('usr/bin');
    expect(await readlink(join(rootfs, 'etc/alternatives/tool'))).toBe('/usr/bin/tool');
    expect((await lstat(join(rootfs, 'run/pipe'))).isFIFO()).toBe(true);
    for (const name of ['proc', 'sys', 'dev', 'tmp', 'workspace']) {
      expect((await lstat(join(rootfs, name))).isDirectory(), name).toBe(true);
    }
  });

  it('gives the same digest whichever way it is packed, and another when a byte differs', async () => {
    const plain = await tar(...typical);
    const changed = await tar(
      ...typical.map((entry) => (entry.text === 'mine' ? { ...entry, text: 'mind' } : entry)),
    );
    const first = await importing(plain, 'first');
    const second = await importing(gzipSync(plain), 'second');
    const third = await importing(changed, 'third');
    expect(second.digest).toBe(first.digest);
    expect(third.digest).not.toBe(first.digest);
  });

  it('keeps a program that every account of the machine could run as root out of their reach', async () => {
    const image = await importing(await tar(...typical));
    expect((await lstat(join(directory, image.id))).mode & 0o777).toBe(0o700);
  });

  it('says what it could not keep', async () => {
    const pax = { 'SCHILY.xattr.security.capability': 'x' };
    const image = await importing(await tar({ name: 'ping', text: 'x', pax }));
    expect(image.warnings).toEqual([expect.stringContaining('extended attributes of 1 entries')]);
  });

  it('takes long names, times below a second and large owners from extended headers', async () => {
    const name = `${'d'.repeat(120)}/${'f'.repeat(120)}`;
    const pax = { mtime: '1600000000.5', uid: '3000000', gid: '3000001' };
    const image = await importing(await tar({ name, text: 'x', pax }));
    const file = await lstat(join(images.rootfs(image.id), name));
    expect([file.mtimeMs, file.uid, file.gid]).toEqual([1_600_000_000_500, 3_000_000, 3_000_001]);
  });

  it('may hold a file twice, as archives that were appended to do; the later one counts', async () => {
    const image = await importing(await tar({ name: 'a', text: 'old' }, { name: 'a', text: 'new' }));
    expect(await readFile(join(images.rootfs(image.id), 'a'), 'utf8')).toBe('new');
  });
});

const file = (name: string): Entry => ({ name, text: 'x' });
const link = (name: string, linkname: string): Entry => ({ name, type: 'symlink', linkname });
const hard = (name: string, linkname: string): Entry => ({ name, type: 'link', linkname });

describe('an archive is refused whole', () => {
  it.each<[string, Entry[]]>([
    ['an absolute path', [file('good'), file('/etc/passwd')]],
    ['a path with ..', [file('good'), file('a/../../evil')]],
    ['a path that is only ..', [{ name: '..', type: 'directory' }]],
    ['an absolute path in an extended header', [{ ...file('good'), pax: { path: '/etc/passwd' } }]],
    ['a symlink that climbs above the root', [link('a/b', '../../outside')]],
    ['a symlink that climbs by a detour', [link('a', 'b/../../outside')]],
    ['a hardlink to an absolute path', [hard('a', '/etc/shadow')]],
    ['a hardlink above the root', [hard('a', '../outside')]],
    ['a hardlink to what is not in it', [hard('a', 'b')]],
    ['a hardlink through a symlink', [link('a', '/etc'), hard('b', 'a/passwd')]],
    ['a file through a symlink', [link('a', '/tmp'), file('a/evil')]],
    ['a directory through a symlink', [link('a', 'b'), { name: 'a/c/', type: 'directory' }]],
    ['a file in place of a symlink', [link('a', '/etc/passwd'), file('a')]],
    ['a symlink in place of a directory', [{ name: 'a/', type: 'directory' }, link('a', '/tmp')]],
    ['a directory in place of a symlink', [link('a', '/tmp'), { name: 'a/', type: 'directory' }]],
    ['a file in place of the root', [file('.')]],
    ['a character device', [{ name: 'dev/mem', type: 'character-device', devmajor: 1, devminor: 1 }]],
    ['a block device', [{ name: 'dev/sda', type: 'block-device', devmajor: 8, devminor: 0 }]],
    ['a symlink where /proc is mounted', [link('proc', '/etc')]],
    ['a file where /dev is mounted', [file('dev')]],
    ['a symlink where /tmp is', [link('tmp', '/srv')]],
    ['a symlink where /workspace is mounted', [link('workspace', '/srv')]],
  ])('that holds %s', async (_what, entries) => {
    await expect(importing(await tar(...entries))).rejects.toMatchObject({ code: 'unsafe' });
    expect(await readdir(directory)).toEqual([]);
  });

  it.each<[string, () => Promise<Buffer> | Buffer, string]>([
    ['is empty', () => Buffer.alloc(0), 'invalid_argument'],
    ['is no archive', () => Buffer.alloc(4096, 'text'), 'invalid_argument'],
    ['holds no files', () => Buffer.alloc(10_240), 'invalid_argument'],
    [
      'is cut inside a file',
      async () => (await tar({ name: 'a', text: 'x'.repeat(5000) })).subarray(0, 2000),
      'invalid_argument',
    ],
    [
      'is cut between two files',
      async () => (await tar(file('a'), file('b'))).subarray(0, 1024),
      'invalid_argument',
    ],
    [
      'is cut in its compressed form',
      async () => gzipSync(await tar(...typical)).subarray(0, -20),
      'invalid_argument',
    ],
    [
      'is damaged in its compressed form',
      async () => zstdCompressSync(await tar(...typical)).fill(0xff, 40, 60),
      'invalid_argument',
    ],
    ['is packed with xz', () => Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a, 0, 0, 0]), 'unsupported'],
    ['has sparse files of GNU', () => tar({ ...file('a'), pax: { 'GNU.sparse.major': '1' } }), 'unsupported'],
    ['has names that are not UTF-8', () => tar(file('caf\uFFFD')), 'unsupported'],
    ['has a name that is too long', () => tar(file('n'.repeat(300))), 'invalid_argument'],
  ])('that %s', async (_what, make, code) => {
    await expect(importing(await make())).rejects.toMatchObject({ code });
    expect(await readdir(directory)).toEqual([]);
  });

  it('that holds more than an image may', async () => {
    images = await openStore({ maxBytes: 1000 });
    await expect(
      importing(gzipSync(await tar({ name: 'zeros', text: '0'.repeat(2000) }))),
    ).rejects.toMatchObject({
      code: 'too_large',
    });
    expect(await readdir(directory)).toEqual([]);
  });

  it('that holds more entries than an image may, though there is nothing in them', async () => {
    images = await openStore({ maxEntries: 100 });
    const many = Array.from({ length: 101 }, (_, i) => ({ name: `empty-${i}` }));
    await expect(importing(gzipSync(await tar(...many)))).rejects.toMatchObject({ code: 'too_large' });
    expect(await readdir(directory)).toEqual([]);
    const deep = { name: `${'d/'.repeat(101)}leaf` };
    await expect(importing(await tar(deep))).rejects.toMatchObject({ code: 'too_large' });
    expect(await readdir(directory)).toEqual([]);
    await importing(await tar(...many.slice(0, 90)));
  });

  it.each(['proc', 'sys', 'dev', 'run'])(
    'whose /%s is no directory, as no sandbox could start',
    async (name) => {
      const link = { name, type: 'symlink', linkname: '/etc' } as const;
      await expect(importing(await tar(...typical, link))).rejects.toMatchObject({ code: 'unsafe' });
      expect(await readdir(directory)).toEqual([]);
    },
  );

  it('when its import is cancelled', async () => {
    const cancel = new AbortController();
    const endless = Readable.from(
      (async function* () {
        yield (await tar({ name: 'a', text: 'x'.repeat(100_000) })).subarray(0, 50_000);
        cancel.abort();
        await new Promise(() => {});
      })(),
    );
    const importingIt = images.importArchive('a', endless, { signal: cancel.signal });
    await expect(importingIt).rejects.toMatchObject({ code: 'cancelled' });
    expect(await readdir(directory)).toEqual([]);
  });
});

describe('a directory', () => {
  it('is imported with owners, modes, links and times', async () => {
    const source = join(home, 'source');
    await mkdir(join(source, 'usr/bin'), { recursive: true });
    await writeFile(join(source, 'usr/bin/tool'), 'a tool', { mode: 0o755 });
    await symlink('usr/bin', join(source, 'bin'));
    await run('ln', [join(source, 'usr/bin/tool'), join(source, 'usr/bin/same')]);
    await run('chown', ['1000:1000', join(source, 'usr/bin/tool')]);
    const image = await images.importDirectory('dir', source);
    const rootfs = images.rootfs(image.id);
    const [copy, original] = await Promise.all(
      [rootfs, source].map((root) => lstat(join(root, 'usr/bin/tool'))),
    );
    expect([copy!.uid, copy!.mode, copy!.nlink]).toEqual([1000, original!.mode, 2]);
    expect(Math.abs(copy!.mtimeMs - original!.mtimeMs)).toBeLessThan(1);
    expect(copy!.ino).not.toBe(original!.ino);
    expect(await readlink(join(rootfs, 'bin'))).toBe('usr/bin');
  });

  it('is imported without its sockets, and says so', async () => {
    const source = join(home, 'source');
    await mkdir(source);
    await writeFile(join(source, 'file'), 'x');
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(join(source, 'socket'), resolve));
    const image = await images.importDirectory('dir', source);
    await new Promise((resolve) => server.close(resolve));
    expect(image.warnings).toEqual([expect.stringContaining('1 sockets')]);
    expect(await readdir(images.rootfs(image.id))).toContain('file');
  });

  it('is refused whole when it holds a device node', async () => {
    const source = join(home, 'source');
    await mkdir(source);
    await run('mknod', [join(source, 'null'), 'c', '1', '3']);
    await expect(images.importDirectory('dir', source)).rejects.toMatchObject({ code: 'unsafe' });
    expect(await readdir(directory)).toEqual([]);
  });

  it.each(['/does/not/exist', 'relative', '/etc/passwd'])('is refused when it is none: %s', async (path) => {
    await expect(images.importDirectory('dir', path)).rejects.toMatchObject({ code: 'invalid_argument' });
  });
});
