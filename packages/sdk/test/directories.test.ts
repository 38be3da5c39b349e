import {
  link,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Header, pack } from 'tar-stream';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { packDirectory } from '../src/node/pack-directory.ts';
import { unpackDirectory } from '../src/node/unpack-directory.ts';

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'coppice-sdk-'));
});
afterEach(() => rm(root, { recursive: true, force: true }));

type EntryHeader = Partial<Header> & Pick<Header, 'name'>;
const tarOf = (...entries: [EntryHeader, string?][]) => {
  const archive = pack();
  for (const [header, content] of entries) archive.entry(header, content ?? '');
  archive.finalize();
  return archive as AsyncIterable<Uint8Array>;
};

test('a directory comes back as it was: content, modes, links, empty and hidden things', async () => {
  const from = join(root, 'from');
  const to = join(root, 'to');
  await mkdir(join(from, 'deep/empty'), { recursive: true });
  const content = Buffer.alloc(300_000, 'x\0\xff');
  await writeFile(join(from, 'deep/big.bin'), content);
  await writeFile(join(from, '.hidden'), '', { mode: 0o600 });
  await writeFile(join(from, 'run.sh'), 'true\n', { mode: 0o755 });
  await link(join(from, 'run.sh'), join(from, 'twin.sh'));
  await symlink('../nowhere', join(from, 'deep/dangling'));
  const seen: string[] = [];
  const done = await unpackDirectory(packDirectory(from), to, { onProgress: ({ path }) => seen.push(path) });

  expect(await readFile(join(to, 'deep/big.bin'))).toEqual(content);
  expect((await stat(join(to, '.hidden'))).mode & 0o777).toBe(0o600);
  expect((await stat(join(to, 'run.sh'))).mode & 0o777).toBe(0o755);
  expect((await stat(join(to, 'twin.sh'))).ino).toBe((await stat(join(to, 'run.sh'))).ino);
  expect(await readlink(join(to, 'deep/dangling'))).toBe('../nowhere');
  expect((await stat(join(to, 'deep/empty'))).isDirectory()).toBe(true);
  expect(done.bytes).toBe(content.length + 'true\n'.length);
  expect(seen).toContain('deep/big.bin');
});

test('an archive that leads out of the directory is refused and nothing is written there', async () => {
  const to = join(root, 'to');
  const outside = join(root, 'outside');
  await mkdir(outside);
  for (const name of ['../outside/a', '/outside/a', 'b/../../outside/a']) {
    await expect(unpackDirectory(tarOf([{ name }, 'x']), to)).rejects.toMatchObject({ code: 'unsafe' });
  }
  const throughLink = tarOf([{ name: 'l', type: 'symlink', linkname: outside }], [{ name: 'l/a' }, 'x']);
  await expect(unpackDirectory(throughLink, to)).rejects.toMatchObject({ code: 'unsafe' });
  await expect(stat(join(outside, 'a'))).rejects.toMatchObject({ code: 'ENOENT' });
});

test('a file that replaces a link replaces the link itself, and no set-user-id bit comes out', async () => {
  const to = join(root, 'to');
  const victim = join(root, 'victim');
  await writeFile(victim, 'mine');
  await unpackDirectory(
    tarOf([{ name: 'f', type: 'symlink', linkname: victim }], [{ name: 'f', mode: 0o4755 }, 'theirs']),
    to,
  );
  expect(await readFile(victim, 'utf8')).toBe('mine');
  const placed = await lstat(join(to, 'f'));
  expect(placed.isFile()).toBe(true);
  expect(placed.mode & 0o7000).toBe(0);
});

test('an archive that ends too early is an error', async () => {
  const chunks: Uint8Array[] = [];
  for await (const chunk of tarOf([{ name: 'f' }, 'x'.repeat(5000)])) chunks.push(chunk);
  const whole = Buffer.concat(chunks);
  async function* half() {
    yield whole.subarray(0, 2000);
  }
  await expect(unpackDirectory(half(), join(root, 'to'))).rejects.toThrow();
});

/** A tar of one entry whose header says what no honest program would. */
const forged = (
  header: EntryHeader,
  change: (bytes: Buffer) => void,
  content = '',
): AsyncIterable<Uint8Array> => {
  async function* bytes() {
    const chunks: Uint8Array[] = [];
    for await (const chunk of tarOf([header, content])) chunks.push(chunk);
    const whole = Buffer.concat(chunks);
    change(whole);
    whole.fill(' ', 148, 156);
    const sum = whole.subarray(0, 512).reduce((total, byte) => total + byte, 0);
    whole.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
    yield whole;
  }
  return bytes();
};

test('what is neither a file, a directory nor a link is refused, and nothing is made of it', async () => {
  const to = join(root, 'to');
  for (const type of ['fifo', 'character-device', 'block-device'] as const) {
    const archive = tarOf([{ name: 'odd', type, devmajor: 1, devminor: 5 }]);
    await expect(unpackDirectory(archive, to)).rejects.toMatchObject({ code: 'unsupported' });
    await expect(lstat(join(to, 'odd'))).rejects.toMatchObject({ code: 'ENOENT' });
  }
});

test('a hard link leads to a file of the archive, and never to one that was there before', async () => {
  const to = join(root, 'to');
  await mkdir(to);
  await writeFile(join(to, 'mine'), 'mine');
  await symlink(join(root, 'outside'), join(to, 'away'));
  await writeFile(join(root, 'outside'), 'outside');
  for (const linkname of ['mine', 'away', 'absent', '../outside', '/etc/passwd']) {
    const archive = tarOf([{ name: 'twin', type: 'link', linkname }]);
    await expect(unpackDirectory(archive, to), linkname).rejects.toMatchObject({ code: 'unsafe' });
  }
  const replaced = tarOf(
    [{ name: 'f' }, 'x'],
    [{ name: 'f', type: 'symlink', linkname: join(root, 'outside') }],
    [{ name: 'twin', type: 'link', linkname: 'f' }],
  );
  await expect(unpackDirectory(replaced, to)).rejects.toMatchObject({ code: 'unsafe' });
  expect((await stat(join(to, 'mine'))).nlink).toBe(1);
});

test('more bytes or files than the caller takes are refused as they come, whatever the archive says', async () => {
  const to = join(root, 'to');
  const large = tarOf([{ name: 'big' }, 'x'.repeat(100_000)]);
  await expect(unpackDirectory(large, to, { maxBytes: 50_000 })).rejects.toMatchObject({ code: 'too_large' });
  const many = tarOf(
    ...Array.from({ length: 20 }, (_, n): [EntryHeader] => [{ name: `d${n}`, type: 'directory' }]),
  );
  await expect(unpackDirectory(many, to, { maxFiles: 10 })).rejects.toMatchObject({ code: 'too_large' });
  expect((await readdir(to)).filter((name) => name.startsWith('d'))).toHaveLength(10);
  // Blocks of zeros hold no entry and have no end.
  async function* zeros() {
    for (;;) yield Buffer.alloc(65_536);
  }
  await expect(unpackDirectory(zeros(), to, { maxBytes: 10_000_000 })).rejects.toMatchObject({
    code: 'too_large',
  });
  // A header that says how large it is itself, to be held in memory.
  const bomb = forged({ name: 'x', type: 'file' }, (bytes) => {
    bytes.write('x', 156);
    bytes.write('77777777777', 124);
  });
  await expect(unpackDirectory(bomb, to)).rejects.toThrow('max size');
});

test('paths that no file has and times that no calendar has are refused or left out', async () => {
  const to = join(root, 'to');
  const deep = tarOf([{ name: `${'d/'.repeat(3000)}f` }, 'x']);
  await expect(unpackDirectory(deep, to)).rejects.toMatchObject({ code: 'unsafe' });
  const late = forged(
    { name: 'late' },
    (bytes) => bytes.set([0x80, 0, 0, 0, 0x7f, ...Array(7).fill(0xff)], 136),
    'x',
  );
  await unpackDirectory(late, to);
  expect(await readFile(join(to, 'late'), 'utf8')).toBe('x');
});
