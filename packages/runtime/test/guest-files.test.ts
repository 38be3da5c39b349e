import { createHash } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  closeSync,
  ftruncateSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { whereMemoryIsFreed } from '@coppice/testkit';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Agent, collect, once, residentBytes, run, startAgent, until } from './guest/start-agent.ts';

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

describe('reading', () => {
  it('gives the bytes of a file, or a range of them', async () => {
    const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 31) & 0xff));
    writeFileSync(at('data'), bytes);
    expect((await collect(agent.guest.read(at('data')))).equals(bytes)).toBe(true);
    const range = await collect(agent.guest.read(at('data'), { offset: 99_999, length: 100_000 }));
    expect(range.equals(bytes.subarray(99_999, 199_999))).toBe(true);
    expect(await collect(agent.guest.read(at('data'), { offset: 299_990, length: 100 }))).toHaveLength(10);
    expect(await collect(agent.guest.read(at('data'), { offset: 400_000 }))).toHaveLength(0);
    expect(await collect(agent.guest.read(at('data'), { length: 0 }))).toHaveLength(0);
  });

  it('refuses what is no regular file, without waiting for it', async () => {
    await run(agent.guest, ['mkfifo', at('fifo')]);
    const codes = async (path: string) => collect(agent.guest.read(path)).catch((error) => error.code);
    expect(await codes(at('fifo'))).toBe('invalid_argument');
    expect(await codes(dir)).toBe('invalid_argument');
    expect(await codes('/dev/zero')).toBe('invalid_argument');
    expect(await codes(at('none'))).toBe('not_found');
    // A special file that cannot be read as it is: no failure of ours.
    expect(await codes('/proc/self/mem')).toBe('unsupported');
    expect(() => agent.guest.read('relative')).toThrow(/not absolute/);
  });

  it('reads files whose size is not known beforehand', async () => {
    expect((await collect(agent.guest.read('/proc/version'))).toString()).toMatch(/^Linux version/);
  });
});

describe('writing', () => {
  it('makes a file with what was asked for', async () => {
    const options = { mode: 0o640, owner: 'nobody', createParents: true };
    expect(await agent.guest.write(at('a/b/new'), once('content'), options)).toBe(7);
    const stat = await agent.guest.stat(at('a/b/new'));
    expect(stat).toMatchObject({ kind: 'file', sizeBytes: 7, mode: 0o640, target: null });
    expect(stat.uid).toBe(Number((await run(agent.guest, ['id', '-u', 'nobody'])).stdout));
    expect(readFileSync(at('a/b/new'), 'utf8')).toBe('content');
  });

  it('keeps mode and owner of the file it replaces', async () => {
    writeFileSync(at('file'), 'old');
    chownSync(at('file'), 1234, 5678);
    chmodSync(at('file'), 0o4750);
    await agent.guest.write(at('file'), once('new'));
    const stat = statSync(at('file'));
    expect([stat.uid, stat.gid, stat.mode & 0o7777, readFileSync(at('file'), 'utf8')]).toEqual([
      1234,
      5678,
      0o4750,
      'new',
    ]);
  });

  it('replaces whole: a reader has the old file or the new one, and a failed write leaves the old', async () => {
    writeFileSync(at('file'), 'old');
    const before = openSync(at('file'), 'r');
    async function* broken() {
      yield Buffer.alloc(200_000, 'x');
      expect(readFileSync(at('file'), 'utf8')).toBe('old');
      throw new Error('the source failed');
    }
    await expect(agent.guest.write(at('file'), broken())).rejects.toThrow('the source failed');
    await until('only the file', () => readdirSync(dir).join() === 'file');
    expect(readFileSync(at('file'), 'utf8')).toBe('old');
    await agent.guest.write(at('file'), once('new'));
    expect(readFileSync(before, 'utf8')).toBe('old');
    expect(readFileSync(at('file'), 'utf8')).toBe('new');
    closeSync(before);
  });

  it('makes a file of pieces with holes between them, however large, and refuses pieces that are not in order', async () => {
    async function* pieces(...list: [number, string][]) {
      for (const [offsetBytes, text] of list) yield { offsetBytes, bytes: Buffer.from(text) };
    }
    const tebibyte = 2 ** 40;
    writeFileSync(at('file'), 'old');
    const all = pieces([0, 'begin'], [5, ''], [70_000, 'middle'], [tebibyte - 3, 'end']);
    expect(await agent.guest.writePieces(at('file'), tebibyte, all, { mode: 0o600 })).toBe(14);
    const { size, blocks, mode } = statSync(at('file'));
    expect([size, mode & 0o777, blocks * 512 < 2 ** 20]).toEqual([tebibyte, 0o600, true]);
    const handle = openSync(at('file'), 'r');
    const bytes = Buffer.alloc(6);
    for (const [offset, text] of [
      [0, 'begin\0'],
      [70_000, 'middle'],
      [tebibyte - 6, '\0\0\0end'],
    ] as const) {
      readSync(handle, bytes, 0, 6, offset);
      expect(bytes.toString()).toBe(text);
    }
    closeSync(handle);
    expect(await agent.guest.writePieces(at('empty'), 4096, pieces())).toBe(0);
    expect(statSync(at('empty')).size).toBe(4096);
    for (const bad of [
      pieces([10, 'a'], [9, 'b']),
      pieces([0, 'abc'], [2, 'd']),
      pieces([95, 'beyond']),
      pieces([2 ** 50, 'x']),
    ])
      await expect(agent.guest.writePieces(at('bad'), 100, bad)).rejects.toMatchObject({
        code: 'invalid_argument',
      });
    await until('nothing is left of them', () => readdirSync(dir).sort().join() === 'empty,file');
  });

  it('ends when its caller gives up, also where the agent reads nothing', async () => {
    const caller = new AbortController();
    const reason = new Error('given up');
    async function* endless() {
      for (;;) yield Buffer.alloc(65_536, 'x');
    }
    const writing = agent.guest.until(caller.signal).write(at('file'), endless());
    writing.catch(() => {});
    await until('it is under way', () => readdirSync(dir).length === 1);
    process.kill(agent.pid, 'SIGSTOP');
    try {
      caller.abort(reason);
      await expect(writing).rejects.toBe(reason);
      await expect(agent.guest.until(caller.signal).stat(at('file'))).rejects.toBe(reason);
    } finally {
      process.kill(agent.pid, 'SIGCONT');
    }
    await until('nothing is left of it', () => readdirSync(dir).length === 0);
    expect(await agent.guest.write(at('file'), once('later'))).toBe(5);
  });

  it('goes through a link to the file that it names', async () => {
    writeFileSync(at('target'), 'old');
    symlinkSync('target', at('link'));
    await agent.guest.write(at('link'), once('new'));
    expect(lstatSync(at('link')).isSymbolicLink()).toBe(true);
    expect(readFileSync(at('target'), 'utf8')).toBe('new');
    symlinkSync('loop', at('loop'));
    await expect(agent.guest.write(at('loop'), once('x'))).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });

  it('refuses what it cannot do, and says why', async () => {
    await expect(agent.guest.write(dir, once('x'))).rejects.toMatchObject({ code: 'invalid_argument' });
    await expect(agent.guest.write(at('no/parent'), once('x'))).rejects.toMatchObject({ code: 'not_found' });
    await expect(agent.guest.write('/dev/null', once('x'))).rejects.toMatchObject({
      code: 'invalid_argument',
    });
    await expect(agent.guest.write(at('f'), once('x'), { owner: 'no-one' })).rejects.toMatchObject({
      code: 'not_found',
    });
    await expect(agent.guest.write(at('f'), once('x'), { mode: 0o77777 })).rejects.toMatchObject({
      code: 'invalid_argument',
    });
    writeFileSync(at('plain'), '');
    await expect(
      agent.guest.write(at('plain/below'), once('x'), { createParents: true }),
    ).rejects.toMatchObject({
      code: 'invalid_argument',
    });
    expect(readdirSync(dir)).toEqual(['plain']);
  });

  it('says that the disk is full, and leaves nothing', async () => {
    // A filesystem of one MiB in a mount namespace of its own.
    const init = await startAgent({ asInit: true });
    try {
      await run(init.guest, ['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', '/mnt']);
      const tooMuch = init.guest.write('/mnt/big', once(Buffer.alloc(3_000_000, 'x')));
      await expect(tooMuch).rejects.toMatchObject({ code: 'no_space', details: { errno: 'ENOSPC' } });
      expect((await init.guest.list('/mnt', {})).entries).toEqual([]);
    } finally {
      await init.stop();
    }
  });

  it('passes a file of 2 GiB through with constant memory', whereMemoryIsFreed, async () => {
    const size = 2 ** 31;
    const fd = openSync(at('sparse'), 'w');
    ftruncateSync(fd, size);
    writeSync(fd, 'the end', size - 7);
    closeSync(fd);
    const pid = agent.pid;
    const before = await residentBytes(agent.guest, pid);
    let most = 0;
    let pieces = 0;
    async function* measured() {
      for await (const piece of agent.guest.read(at('sparse'))) {
        if (++pieces % 4096 === 0) most = Math.max(most, await residentBytes(agent.guest, pid));
        yield piece;
      }
    }
    expect(await agent.guest.write(at('copy'), measured())).toBe(size);
    expect(most - before).toBeLessThan(8 << 20);
    expect((await collect(agent.guest.read(at('copy'), { offset: size - 7 }))).toString()).toBe('the end');
    // Zeros become holes again.
    expect(statSync(at('copy')).blocks * 512).toBeLessThan(256 << 20);
  });
});

describe('trees', () => {
  it('are listed as deep and as far as asked', async () => {
    mkdirSync(at('d/e/f'), { recursive: true });
    writeFileSync(at('d/e/file'), 'abc');
    writeFileSync(at('name with ünïcode'), '');
    symlinkSync('/nowhere', at('dangling'));
    const names = async (options: { depth?: number; limit?: number }) =>
      (await agent.guest.list(dir, options)).entries.map(({ path }) => path.slice(dir.length + 1));
    expect(await names({})).toEqual(['d', 'dangling', 'name with ünïcode']);
    expect(await names({ depth: 2 })).toEqual(['d', 'd/e', 'dangling', 'name with ünïcode']);
    expect(await names({ depth: 10 })).toEqual([
      'd',
      'd/e',
      'd/e/f',
      'd/e/file',
      'dangling',
      'name with ünïcode',
    ]);
    expect(await agent.guest.list(dir, { depth: 10, limit: 4 })).toMatchObject({ truncated: true });
    expect(await agent.guest.list(dir, { depth: 10, limit: 6 })).toMatchObject({ truncated: false });
    const { entries } = await agent.guest.list(dir, { depth: 10 });
    expect(entries.find(({ path }) => path === at('d/e/file'))).toMatchObject({ kind: 'file', sizeBytes: 3 });
    expect(entries.find(({ path }) => path === at('dangling'))).toMatchObject({
      kind: 'symlink',
      target: '/nowhere',
    });
    await expect(agent.guest.list(at('none'), {})).rejects.toMatchObject({ code: 'not_found' });
    await expect(agent.guest.list(at('d/e/file'), {})).rejects.toMatchObject({ code: 'invalid_argument' });
  });

  it('of many entries are listed whole', async () => {
    for (let i = 0; i < 3000; i++) writeFileSync(at(`entry-${i}`), '');
    const { entries, truncated } = await agent.guest.list(dir, {});
    expect([entries.length, truncated]).toEqual([3000, false]);
  });

  it('are removed with all that is in them, links not followed', async () => {
    const deep = 'x/'.repeat(1500);
    mkdirSync(at('tree/a/b'), { recursive: true });
    await run(agent.guest, { argv: ['mkdir', '-p', `tree/${deep}`], cwd: dir });
    writeFileSync(at('kept'), 'kept');
    symlinkSync(dir, at('tree/a/link'));
    linkSync(at('kept'), at('tree/a/b/hard'));
    await expect(agent.guest.remove(at('tree'))).rejects.toMatchObject({
      code: 'in_use',
      hint: /recursive/ as never,
    });
    await agent.guest.remove(at('tree'), { recursive: true });
    expect(readdirSync(dir)).toEqual(['kept']);
    await agent.guest.remove(at('kept'));
    expect(readdirSync(dir)).toEqual([]);
    await expect(agent.guest.remove(at('kept'))).rejects.toMatchObject({ code: 'not_found' });
    await expect(agent.guest.remove('/', { recursive: true })).rejects.toMatchObject({
      code: 'invalid_argument',
    });
    await expect(agent.guest.remove(`${dir}/..`, { recursive: true })).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });

  it('are moved and made', async () => {
    await agent.guest.mkdir(at('a'), { mode: 0o700 });
    expect(await agent.guest.stat(at('a'))).toMatchObject({ kind: 'directory', mode: 0o700 });
    await expect(agent.guest.mkdir(at('a'))).rejects.toMatchObject({ code: 'name_taken' });
    await agent.guest.mkdir(at('a'), { parents: true });
    await agent.guest.mkdir(at('p/q/r'), { parents: true });
    await agent.guest.move(at('p'), at('moved'));
    expect(
      (await agent.guest.list(dir, { depth: 5 })).entries.map(({ path }) => path.slice(dir.length)),
    ).toEqual(['/a', '/moved', '/moved/q', '/moved/q/r']);
    await expect(agent.guest.move(at('none'), at('x'))).rejects.toMatchObject({ code: 'not_found' });
    await expect(agent.guest.move(at('a'), '/proc/x')).rejects.toMatchObject({ code: 'unsupported' });
  });

  it('are flushed', async () => {
    await agent.guest.sync();
  });
});

describe('after a fork', () => {
  it('the sandbox finds its new name in the event file, replaced whole', async () => {
    const init = await startAgent({ asInit: true });
    try {
      await run(init.guest, ['mount', '-t', 'tmpfs', 'tmpfs', '/run']);
      const notice = {
        sandboxId: 'sb_test',
        name: 'a "quoted" name',
        hostname: '',
        entropy: createHash('sha256').digest(),
      };
      await init.guest.announceFork(notice);
      const event = JSON.parse((await collect(init.guest.read('/run/coppice/fork.json'))).toString());
      expect(event).toMatchObject({ sandbox_id: 'sb_test', name: 'a "quoted" name' });
      expect(Date.parse(event.forked_at)).not.toBeNaN();
      await init.guest.announceFork({ ...notice, sandboxId: 'sb_second' });
      expect((await init.guest.list('/run/coppice', {})).entries.map(({ path }) => path)).toEqual([
        '/run/coppice/fork.json',
      ]);
    } finally {
      await init.stop();
    }
  });
});
