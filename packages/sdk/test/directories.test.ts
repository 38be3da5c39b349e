import {
  link,
  lstat,
  mkdir,
  mkdtemp,
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
  const done = await unpackDirectory(packDirectory(from), to, ({ path }) => seen.push(path));

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
