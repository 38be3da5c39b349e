import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { type Header, pack as tarPack } from 'tar-stream';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { connectGuest } from '../src/index.ts';
import { type Agent, collect, once, run, startAgent, until } from './guest/start-agent.ts';

let agent: Agent;
let dir: string;
let count = 0;
beforeAll(async () => {
  agent = await startAgent();
});
afterAll(() => agent.stop());
beforeEach(() => {
  dir = join(agent.dir, `case-${++count}`);
  mkdirSync(dir);
});

const at = (name: string) => join(dir, name);

type Entry = Partial<Header> & { name: string; content?: string };

/** Links are listed, not followed. */
const everythingIn = (root: string): string[] =>
  execFileSync('find', [root, '-printf', '%y %P %l\\n'], { encoding: 'utf8' }).split('\n').sort();

const archive = (entries: readonly Entry[]): Promise<Buffer> => {
  const tar = tarPack();
  for (const { content, ...header } of entries) tar.entry(header as Header, content ?? '');
  tar.finalize();
  return collect(tar as unknown as AsyncIterable<Uint8Array>);
};

const makeTree = (root: string) => {
  mkdirSync(join(root, 'sub/empty'), { recursive: true });
  writeFileSync(join(root, 'plain'), 'content');
  chmodSync(join(root, 'plain'), 0o751);
  chownSync(join(root, 'plain'), 1001, 1002);
  utimesSync(join(root, 'plain'), 1_500_000_000, 1_500_000_000);
  linkSync(join(root, 'plain'), join(root, 'sub/hard'));
  symlinkSync('../plain', join(root, 'sub/soft'));
  symlinkSync('/nowhere/at/all', join(root, 'dangling'));
  writeFileSync(join(root, 'ünïcode nàme'), 'u');
  writeFileSync(join(root, `${'long'.repeat(50)}`), 'long');
  mkdirSync(join(root, 'd'.repeat(120), 'e'.repeat(120)), { recursive: true });
  writeFileSync(join(root, 'd'.repeat(120), 'e'.repeat(120), 'f'), 'deep');
  writeFileSync(join(root, 'binary'), Buffer.from(Array.from({ length: 100_000 }, (_, i) => i & 0xff)));
  utimesSync(join(root, 'sub'), 1_400_000_000, 1_400_000_000);
};

const expectSameTree = (copy: string, original: string) => {
  const names = (root: string) => readdirSync(root, { recursive: true }).map(String).sort();
  expect(names(copy)).toEqual(names(original));
  for (const name of names(original)) {
    const [a, b] = [lstatSync(join(copy, name)), lstatSync(join(original, name))];
    expect([name, a.mode, a.uid, a.gid, Math.floor(a.mtimeMs / 1000)]).toEqual([
      name,
      b.mode,
      b.uid,
      b.gid,
      Math.floor(b.mtimeMs / 1000),
    ]);
    if (b.isSymbolicLink()) expect(readlinkSync(join(copy, name))).toBe(readlinkSync(join(original, name)));
    if (b.isFile())
      expect(readFileSync(join(copy, name)).equals(readFileSync(join(original, name)))).toBe(true);
  }
  expect(statSync(join(copy, 'sub/hard')).ino).toBe(statSync(join(copy, 'plain')).ino);
};

describe('an archive of a tree', () => {
  it('comes back as it was: links, modes, owners, times and names', async () => {
    mkdirSync(at('original'));
    makeTree(at('original'));
    const result = await agent.guest.unpack(at('copy'), agent.guest.pack(at('original')));
    expect(result.files).toBe(8);
    expectSameTree(at('copy'), at('original'));
  });

  it('is one that other programs read, and theirs is one that we read', async () => {
    mkdirSync(at('original'));
    makeTree(at('original'));
    writeFileSync(at('ours.tar'), await collect(agent.guest.pack(at('original'))));
    mkdirSync(at('theirs'));
    execFileSync('tar', ['-xpf', at('ours.tar'), '-C', at('theirs'), '--same-owner']);
    expectSameTree(at('theirs'), at('original'));
    for (const format of ['gnu', 'pax', 'ustar']) {
      const source = format === 'ustar' ? at('original/sub') : at('original');
      execFileSync('tar', ['-cf', at(`${format}.tar`), `--format=${format}`, '-C', source, '.']);
      await agent.guest.unpack(at(`from-${format}`), once(readFileSync(at(`${format}.tar`))));
    }
    expectSameTree(at('from-gnu'), at('original'));
    expectSameTree(at('from-pax'), at('original'));
    expect(readFileSync(at('from-ustar/hard'), 'utf8')).toBe('content');
  });

  it('of a single file holds that file', async () => {
    writeFileSync(at('file'), 'alone');
    await agent.guest.unpack(at('out'), agent.guest.pack(at('file')));
    expect(readFileSync(at('out/file'), 'utf8')).toBe('alone');
  });

  it('goes over what is there already, and leaves the rest alone', async () => {
    mkdirSync(at('target/usr/lib'), { recursive: true });
    symlinkSync('usr/lib', at('target/lib'));
    writeFileSync(at('target/kept'), 'kept');
    writeFileSync(at('target/replaced'), 'old');
    const tar = await archive([
      { name: 'replaced', content: 'new' },
      { name: 'lib/library', content: 'library' },
      { name: 'made/by/itself', content: 'x' },
    ]);
    expect(await agent.guest.unpack(at('target'), once(tar))).toEqual({ files: 3, bytes: 11 });
    expect(readFileSync(at('target/replaced'), 'utf8')).toBe('new');
    expect(readFileSync(at('target/kept'), 'utf8')).toBe('kept');
    expect(readFileSync(at('target/usr/lib/library'), 'utf8')).toBe('library');
    expect(readdirSync(at('target')).sort()).toEqual(['kept', 'lib', 'made', 'replaced', 'usr']);
  });

  it('gives directories that are there its owners, modes and times only where that is asked for', async () => {
    mkdirSync(at('target/named/implied'), { recursive: true });
    mkdirSync(at('target/behind'));
    symlinkSync('behind', at('target/link'));
    for (const name of ['', '/named', '/named/implied', '/behind']) chmodSync(at(`target${name}`), 0o700);
    const given = {
      type: 'directory',
      mode: 0o2755,
      uid: 5,
      gid: 6,
      mtime: new Date(1_500_000_000_000),
    } as const;
    const tar = await archive([
      { ...given, name: './' },
      { ...given, name: './/named/' },
      { name: 'named/implied/file', content: 'x' },
      { ...given, name: 'link' },
      { name: 'link/file', content: 'x' },
    ]);
    const seen = (): Record<string, string> =>
      Object.fromEntries(
        ['', 'named', 'named/implied', 'behind'].map((name) => {
          const { mode, uid, gid, mtimeMs } = statSync(at(`target/${name}`));
          return [name, `${(mode & 0o7777).toString(8)} ${uid}:${gid} ${mtimeMs === 1_500_000_000_000}`];
        }),
      );
    const kept = '700 0:0 false';
    await agent.guest.unpack(at('target'), once(tar));
    expect(seen()).toEqual({ '': kept, named: kept, 'named/implied': kept, behind: kept });
    // What a link leads to is not what the archive has an entry of, and neither is a directory that it only implies.
    await agent.guest.unpack(`${at('target')}//`, once(tar), { replaceAttributes: true });
    const taken = '2755 5:6 true';
    expect(seen()).toEqual({ '': taken, named: taken, 'named/implied': kept, behind: kept });
  });

  it('of a place that is not there is refused', async () => {
    await expect(collect(agent.guest.pack(at('none')))).rejects.toMatchObject({ code: 'not_found' });
  });
});

describe('an archive that would do harm', () => {
  const good = { name: 'good', content: 'good' };

  it.each<[string, string, readonly Entry[]]>([
    ['an absolute path', 'unsafe', [good, { name: '/absolute', content: 'x' }]],
    ['a path with ..', 'unsafe', [good, { name: 'a/../../outside', content: 'x' }]],
    [
      'an entry through a link of its own',
      'unsafe',
      [good, { name: 'l', type: 'symlink', linkname: '..' }, { name: 'l/x', content: 'x' }],
    ],
    [
      'an entry through an absolute link',
      'unsafe',
      [good, { name: 'l', type: 'symlink', linkname: '/tmp' }, { name: 'l/x', content: 'x' }],
    ],
    ['a hard link to the outside', 'unsafe', [good, { name: 'h', type: 'link', linkname: '../secret' }]],
    ['an absolute hard link', 'unsafe', [good, { name: 'h', type: 'link', linkname: '/etc/passwd' }]],
    [
      'a hard link to what it does not hold',
      'unsafe',
      [good, { name: 'h', type: 'link', linkname: 'there' }],
    ],
    ['a device node', 'unsafe', [good, { name: 'd', type: 'block-device' }]],
    ['a directory over a file', 'conflict', [good, { name: 'there/below', content: 'x' }]],
    ['a file over a directory', 'conflict', [good, { name: 'directory', content: 'x' }]],
    ['an entry below a link that leads out', 'unsafe', [good, { name: 'way-out/x', content: 'x' }]],
  ])('%s is refused whole', async (_, code, entries) => {
    writeFileSync(at('secret'), 'secret');
    mkdirSync(at('target/directory'), { recursive: true });
    writeFileSync(at('target/there'), 'there');
    symlinkSync('..', at('target/way-out'));
    const before = everythingIn(dir);
    await expect(agent.guest.unpack(at('target'), once(await archive(entries)))).rejects.toMatchObject({
      code,
    });
    expect(everythingIn(dir)).toEqual(before);
    expect(existsSync(at('outside'))).toBe(false);
    expect(existsSync('/absolute')).toBe(false);
  });

  it('that goes on into another filesystem is refused whole', async () => {
    const init = await startAgent({ asInit: true });
    try {
      mkdirSync(join(init.dir, 'target/other'), { recursive: true });
      await run(init.guest, ['mount', '-t', 'tmpfs', 'tmpfs', join(init.dir, 'target/other')]);
      const tar = await archive([good, { name: 'other/there', content: 'x' }]);
      await expect(init.guest.unpack(join(init.dir, 'target'), once(tar))).rejects.toMatchObject({
        code: 'unsupported',
        message: expect.stringContaining('other'),
      });
      expect(readdirSync(join(init.dir, 'target'))).toEqual(['other']);
      // Into the other one by itself it goes.
      const below = await archive([{ name: 'there', content: 'x' }]);
      await init.guest.unpack(join(init.dir, 'target/other'), once(below));
    } finally {
      await init.stop();
    }
  });

  it.each<[string, Record<string, string>]>([
    ['an owner that is too large', { uid: '4294967296' }],
    ['an owner that stands for none', { gid: '4294967295' }],
    ['an owner that is no number', { uid: 'root' }],
    ['a size that is no number', { size: '1x' }],
    ['a negative size', { size: '-1' }],
    ['a time that is no number', { mtime: 'now' }],
  ])('with %s is refused whole', async (_, pax) => {
    const tar = await archive([good, { name: 'odd', content: 'x', pax } as Entry]);
    await expect(agent.guest.unpack(at('target'), once(tar))).rejects.toMatchObject({
      code: 'invalid_argument',
    });
    expect(readdirSync(dir)).toEqual([]);
  });

  it('that nests as deep as a path can be is taken, also over one that is there', async () => {
    const deep = Array.from({ length: 1500 }, () => 'd').join('/');
    const tar = await archive([{ name: `${deep}/leaf`, content: 'x' }]);
    for (let round = 0; round < 2; round += 1)
      expect(await agent.guest.unpack(at('target'), once(tar))).toMatchObject({ files: 1 });
    expect(readFileSync(join(at('target'), deep, 'leaf'), 'utf8')).toBe('x');
    expect((await collect(agent.guest.pack(at('target')))).length).toBeGreaterThan(1500 * 512);
    await agent.guest.remove(at('target'), { recursive: true });
  });

  it('of a tree that is deeper than any path is made, or refused with the reason, and so is a list of it', async () => {
    const said = (work: Promise<unknown>) => work.catch((error: NodeJS.ErrnoException) => error.code);
    const dig =
      "import os\nfor level in range(5000):\n  os.mkdir('d')\n  os.chdir('d')\nos.symlink('x', 'link')";
    execFileSync('python3', ['-c', dig], { cwd: dir });
    const archived = await said(collect(agent.guest.pack(dir)).then(({ length }) => length > 5000 * 512));
    // Where few files may be open at once, these are too many.
    expect([true, 'limit_reached']).toContain(archived);
    const { entries, truncated } = await agent.guest.list(dir, { depth: 4096, limit: 10_000 });
    expect(truncated ? 4096 : entries.length).toBe(4096);
    await agent.guest.remove(at('d'), { recursive: true });
    expect(readdirSync(dir)).toEqual([]);
  });

  it('garbage, a damaged one and one that is cut off leave nothing', async () => {
    const whole = await archive([
      { name: 'a', content: 'a'.repeat(5000) },
      { name: 'b', content: 'b' },
    ]);
    const damaged = Buffer.from(whole);
    damaged[10] = 0xff;
    for (const bytes of [
      Buffer.alloc(2000, 'garbage'),
      damaged,
      whole.subarray(0, 700),
      whole.subarray(0, whole.length - 1024),
      Buffer.alloc(0),
    ]) {
      await expect(agent.guest.unpack(at('target'), once(bytes))).rejects.toMatchObject({
        code: 'invalid_argument',
      });
      expect(readdirSync(dir)).toEqual([]);
    }
  });

  it('whose sender goes away in the middle leaves nothing', async () => {
    const other = await connectGuest(agent.socketPath);
    const whole = await archive([{ name: 'a', content: 'a'.repeat(500_000) }]);
    const never = Promise.withResolvers<void>();
    async function* stuck() {
      yield whole.subarray(0, 200_000);
      await never.promise;
    }
    const unpacking = other.unpack(at('target'), stuck());
    unpacking.catch(() => {});
    await until('the directory', () => existsSync(at('target')));
    other.close();
    await until('nothing is left', () => readdirSync(dir).length === 0);
    never.resolve();
    await expect(unpacking).rejects.toMatchObject({ code: 'unavailable' });
  });
});
