import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Coppice, type Sandbox } from '@coppice/sdk';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CliHome } from './cli-home.ts';

let cli: CliHome;
let coppice: Coppice;
let dev: Sandbox;
beforeAll(async () => {
  cli = await CliHome.start();
  coppice = new Coppice({ home: cli.home });
  dev = await coppice.sandboxes.create({ name: 'dev', labels: { team: 'a' } });
});
afterAll(async () => {
  coppice?.close();
  await cli?.remove();
});

const rawFetch = async (path: string): Promise<Response> => {
  const { url } = JSON.parse(await readFile(join(cli.home, 'daemon.json'), 'utf8')) as { url: string };
  const token = (await readFile(join(cli.home, 'token'), 'utf8')).trim();
  return fetch(new URL(path, url), { headers: { authorization: `Bearer ${token}` } });
};

describe('sandboxes', () => {
  test('are destroyed at the end of the block that uses them', async () => {
    let id: string;
    {
      await using sandbox = await coppice.sandboxes.create();
      id = sandbox.id;
      expect((await sandbox.exec('echo hello')).stdout).toBe('hello\n');
    }
    await expect(coppice.sandboxes.get(id)).rejects.toMatchObject({ code: 'not_found' });
  });

  test('are found by name, id and label, and are what was asked for', async () => {
    expect((await coppice.sandboxes.get('dev')).id).toBe(dev.id);
    expect(await coppice.sandboxes.list({ label: 'team=a' })).toEqual([
      expect.objectContaining({ id: dev.id }),
    ]);
    expect(await coppice.sandboxes.list({ label: 'team=b' })).toEqual([]);
    await dev.update({ labels: { team: 'a', more: 'yes' } });
    expect((await dev.inspect()).labels).toEqual({ team: 'a', more: 'yes' });
  });

  test('of a list can be acted on, and are as plain data what the daemon said', async () => {
    await using other = await coppice.sandboxes.create({ name: 'listed', labels: { team: 'listed' } });
    const [listed] = await coppice.sandboxes.list({ label: 'team=listed' });
    expect(listed).toMatchObject({ id: other.id, name: 'listed', state: 'running' });
    expect((await listed!.exec('echo from a list')).stdout).toBe('from a list\n');
    await listed!.files.write('/root/file', 'text');
    const plain = JSON.parse(JSON.stringify(listed)) as object;
    const { items } = (await (await rawFetch('/v1/sandboxes?label=team%3Dlisted')).json()) as {
      items: object[];
    };
    expect(Object.keys(plain).sort()).toEqual(Object.keys(items[0]!).sort());
    const job = await listed!.jobs.start('echo from a job; exit 3');
    const seen: string[] = [];
    for await (const { data } of job.follow()) seen.push(Buffer.from(data).toString());
    expect(seen.join('')).toBe('from a job\n');
    expect(await (await listed!.jobs.list())[0]!.wait()).toMatchObject({ exit_code: 3 });
    await listed!.snapshot({ name: 'kept' });
    const [snapshot] = await listed!.snapshots();
    const { sandboxes } = await snapshot!.fork();
    expect((await sandboxes[0]!.exec('cat /root/file')).stdout).toBe('text');
    await sandboxes[0]!.destroy();
    await snapshot!.delete();
    expect(await listed!.snapshots()).toEqual([]);
    const sleeper = await listed!.jobs.start('exec sleep 1000');
    await sleeper.kill(9);
    expect(await sleeper.wait()).toMatchObject({ signal: 9 });
  });

  test('have a token that reaches them and no other', async () => {
    await using other = await coppice.sandboxes.create();
    const { url } = JSON.parse(await readFile(join(cli.home, 'daemon.json'), 'utf8')) as { url: string };
    using narrow = new Coppice({ url, token: other.token! });
    expect((await narrow.sandboxes.at(other.id).exec(['true'])).exit_code).toBe(0);
    await expect(narrow.sandboxes.at(dev.id).exec(['true'])).rejects.toMatchObject({ code: 'forbidden' });
    await expect(narrow.sandboxes.list()).rejects.toMatchObject({ code: 'forbidden' });
  });
});

describe('processes', () => {
  test('a command that fails is an answer; bad input is an error that names the field', async () => {
    expect(await dev.exec(['sh', '-c', 'echo no >&2; exit 3'])).toMatchObject({
      exit_code: 3,
      stderr: 'no\n',
    });
    await expect(dev.exec('true', { timeout_ms: -1 })).rejects.toMatchObject({
      code: 'invalid_argument',
      message: expect.stringContaining('timeout_ms'),
    });
  });

  test('stream their output in order and take input while they run', async () => {
    await using process = await dev.execStream([
      'sh',
      '-c',
      'read a; echo "got $a"; read b; echo "got $b" >&2; exit 4',
    ]);
    await process.write('one\n');
    const seen: string[] = [];
    for await (const { stream, data } of process) {
      seen.push(`${stream}: ${data.toString().trim()}`);
      if (seen.length === 1) await process.write('two\n');
    }
    expect(seen).toEqual(['stdout: got one', 'stderr: got two']);
    expect(await process.exit).toEqual({ exit_code: 4, signal: null, timed_out: false });
  });

  test('a stream of many bytes arrives whole though the reader is slow at times', async () => {
    const total = 64 * 1024 * 1024;
    let bytes = 0;
    let chunks = 0;
    for await (const { data } of await dev.execStream(`head -c ${total} /dev/zero`)) {
      bytes += data.length;
      chunks += 1;
      if (chunks % 100 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    expect(bytes).toBe(total);
  });

  test('released output makes room for what comes next, and what is kept stays as it was', async () => {
    const content = Buffer.alloc(48 * 1024 * 1024);
    for (let at = 0; at < content.length; at += 4) content.writeUInt32LE(at, at);
    await dev.files.write('/root/counted', content);
    const kept: { readonly data: Uint8Array; readonly at: number }[] = [];
    let at = 0;
    let differing = 0;
    for await (const { data, release } of await dev.execStream(['cat', '/root/counted'])) {
      if (!content.subarray(at, at + data.length).equals(data)) differing += 1;
      if (kept.length < 40 && at % 5 === 0) {
        kept.push({ data, at });
      } else {
        release();
        // Said twice, it must not free what somebody else has by now.
        release();
      }
      at += data.length;
    }
    expect({ bytes: at, differing }).toEqual({ bytes: content.length, differing: 0 });
    expect(kept.length).toBeGreaterThan(0);
    for (const { data, at: from } of kept)
      expect(content.subarray(from, from + data.length).equals(data)).toBe(true);
  });

  test('leaving the loop ends the command', async () => {
    const process = await dev.execStream(['sh', '-c', 'echo $$; exec sleep 1000000']);
    let pid = '';
    for await (const { data } of process) {
      pid = data.toString().trim();
      break;
    }
    await expect(process.exit).rejects.toMatchObject({ code: 'cancelled' });
    await expect
      .poll(async () => (await dev.exec(['kill', '-0', pid])).exit_code, { timeout: 60_000 })
      .not.toBe(0);
  });

  test('a call in the daemon can be cancelled', async () => {
    const controller = new AbortController();
    const waiting = dev.exec(['sleep', '1000000'], { signal: controller.signal });
    controller.abort();
    await expect(waiting).rejects.toMatchObject({ code: 'cancelled' });
  });

  test('a command in a sandbox that is not there is an error before it starts', async () => {
    await expect(async () => {
      for await (const _ of await coppice.sandboxes.at('nobody').execStream('true'));
    }).rejects.toMatchObject({ code: 'not_found' });
  });

  test('jobs can be followed, waited for and ended', async () => {
    const job = await dev.jobs.start(['sh', '-c', 'echo one; echo two >&2; exit 5']);
    const text: string[] = [];
    for await (const { data } of dev.jobs.follow(job.id)) text.push(data.toString());
    expect(text.join('')).toContain('one\n');
    expect(text.join('')).toContain('two\n');
    expect(await dev.jobs.wait(job.id)).toMatchObject({ exit_code: 5 });
    const endless = await dev.jobs.start(['sleep', '1000000']);
    await dev.jobs.kill(endless.id, 9);
    expect(await dev.jobs.wait(endless.id)).toMatchObject({ signal: 9 });
  });

  test('a terminal goes on when nobody is attached', async () => {
    const terminal = await dev.terminals.open({ command: ['sh'], cols: 100, rows: 30 });
    const read = async (typed: string, until: string): Promise<void> => {
      await using session = await dev.terminals.attach(terminal.id);
      await session.write(typed);
      let shown = '';
      for await (const data of session) {
        shown += data.toString();
        if (shown.includes(until)) return;
      }
      throw new Error(`the terminal ended without ${until}: ${shown}`);
    };
    await read('KEPT=4$((1+1)); echo "[$KEPT]"\n', '[42]');
    await read('stty size; echo "again $KEPT"\n', 'again 42');
    await dev.terminals.kill(terminal.id, 9);
  });
});

describe('files', () => {
  test('are written and read as they are, in parts and as streams', async () => {
    const content = Buffer.from(Array.from({ length: 70_000 }, (_, index) => index % 251));
    await dev.files.write('/root/deep/er/data.bin', content, { mode: '640' });
    expect(await dev.files.read('/root/deep/er/data.bin')).toEqual(content);
    expect(await dev.files.read('/root/deep/er/data.bin', { offset: 5, length: 7 })).toEqual(
      content.subarray(5, 12),
    );
    expect(await dev.files.stat('/root/deep/er/data.bin')).toMatchObject({
      size_bytes: 70_000,
      mode: expect.stringMatching(/640$/),
    });
    async function* parts() {
      yield Buffer.from('first,');
      yield Buffer.from('second');
    }
    await dev.files.write('/root/streamed', parts());
    expect(await dev.files.readText('/root/streamed')).toBe('first,second');
    await dev.files.write('/root/empty', '');
    expect(await dev.files.readText('/root/empty')).toBe('');
  });

  test('a write whose source fails leaves the old file', async () => {
    await dev.files.write('/root/stays', 'old');
    async function* failing() {
      yield Buffer.from('new');
      throw new Error('the source failed');
    }
    await expect(dev.files.write('/root/stays', failing())).rejects.toThrow('the source failed');
    expect(await dev.files.readText('/root/stays')).toBe('old');
  });

  test('are listed, moved, edited and removed', async () => {
    await dev.files.makeDirectory('/root/dir/sub');
    await dev.files.write('/root/dir/a', 'x = 1');
    await dev.files.edit('/root/dir/a', 'x = 1', 'x = 2');
    await dev.files.move('/root/dir/a', '/root/dir/sub/b');
    const { entries } = await dev.files.list('/root/dir', { depth: 2 });
    expect(entries.map(({ path }) => path).sort()).toEqual(['/root/dir/sub', '/root/dir/sub/b']);
    expect(await dev.files.readText('/root/dir/sub/b')).toBe('x = 2');
    await dev.files.remove('/root/dir', { recursive: true });
    await expect(dev.files.stat('/root/dir')).rejects.toMatchObject({ code: 'not_found' });
  });

  test('directories go in and out whole, with progress', async () => {
    const from = join(cli.directory, 'from');
    await mkdir(join(from, 'sub'), { recursive: true });
    await writeFile(join(from, 'sub/a.txt'), 'content');
    let last = 0;
    await dev.files.uploadDirectory(from, '/root/up', { onProgress: ({ bytes }) => (last = bytes) });
    expect(last).toBe('content'.length);
    await dev.files.downloadDirectory('/root/up', join(cli.directory, 'to'));
    expect(await readFile(join(cli.directory, 'to/sub/a.txt'), 'utf8')).toBe('content');
  });

  test('changes are seen as they happen', async () => {
    await dev.files.makeDirectory('/root/watched');
    const controller = new AbortController();
    const changes = dev.files.watch('/root/watched', { signal: controller.signal });
    const first = changes.next();
    // The watch may begin after the first of these: they go on until one is seen.
    let seen = false;
    const writing = (async () => {
      for (let count = 0; !seen; count += 1) await dev.files.write(`/root/watched/f${count}`, 'x');
    })();
    const { value } = await first;
    seen = true;
    await writing;
    expect(value?.path).toMatch(/^\/root\/watched\//);
    controller.abort();
    await changes.return();
  });
});

test('events are streamed from any sequence number on', async () => {
  await using sandbox = await coppice.sandboxes.create();
  const { events } = await coppice.events.list({ sandbox: sandbox.id });
  const [first] = events;
  for await (const event of coppice.events.stream({ after: first!.seq - 1, sandbox: sandbox.id })) {
    expect(event).toEqual(first);
    break;
  }
});

test('snapshots fork, compare and merge', async () => {
  await using trunk = await coppice.sandboxes.create();
  await trunk.files.write('/root/f', 'one\n');
  const snapshot = await trunk.snapshot({ note: 'base' });
  const { sandboxes } = await coppice.snapshots.fork(snapshot.id, { count: 2 });
  const [left, right] = sandboxes as [Sandbox, Sandbox];
  await using _left = left;
  await using _right = right;
  await left.files.write('/root/f', 'two\n');
  await right.files.write('/root/f', 'three\n');
  expect((await coppice.diff(trunk.id, left.id)).changes).toEqual([
    expect.objectContaining({ path: '/root/f', change: 'modified' }),
  ]);
  expect((await coppice.diffFile(trunk.id, left.id, '/root/f')).unified).toContain('+two');
  expect(await trunk.merge(left)).toMatchObject({ applied: true });
  await expect(trunk.merge(right)).rejects.toMatchObject({
    code: 'conflict',
    details: { conflicts: [expect.objectContaining({ path: '/root/f' })] },
  });
  await trunk.restore(snapshot.id);
  expect(await trunk.files.readText('/root/f')).toBe('one\n');
  expect((await coppice.lineage()).map(({ id }) => id)).toContain(snapshot.id);
});
