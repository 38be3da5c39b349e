import { CoppiceError } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const failure = (work: Promise<unknown>): Promise<CoppiceError> =>
  work.then(
    () => Promise.reject(new Error('it should have failed')),
    (error: unknown) => (error instanceof CoppiceError ? error : Promise.reject(error)),
  );

const run = async (sandbox: Sandbox, command: string): Promise<string> => {
  const { stdout, stderr, exit_code: code } = await sandbox.exec(command);
  if (code !== 0) throw new Error(`${command}: ${stderr}`);
  return stdout.trim();
};

describe('diff and merge', () => {
  let daemon: RunningDaemon;
  beforeAll(async () => {
    daemon = await RunningDaemon.start();
  });
  afterAll(() => daemon[Symbol.asyncDispose]());

  /** A sandbox with some files, and a fork of it. */
  async function pair(): Promise<{ source: Sandbox; fork: Sandbox } & AsyncDisposable> {
    const source = await daemon.client.sandboxes.create();
    await run(
      source,
      'mkdir /root/d; echo a > /root/a; echo b > /root/b; echo c > /root/d/c; chmod 600 /root/a',
    );
    const fork = (await source.fork()).sandboxes[0]!;
    return {
      source,
      fork,
      [Symbol.asyncDispose]: async () => {
        await fork.destroy();
        await source.destroy();
      },
    };
  }

  test('a diff names what was added, removed, modified and given another mode', async () => {
    await using both = await pair();
    const { source, fork } = both;
    await run(fork, 'echo new > /root/new; rm /root/b; echo changed > /root/d/c; chmod 644 /root/a');
    const { changes, summary } = await daemon.client.diff(source.id, fork.id);
    const ofRoot = changes
      .filter(({ path }) => path.startsWith('/root/'))
      .map(({ path, change }) => `${change} ${path}`);
    expect(ofRoot.sort()).toEqual([
      'added /root/new',
      'mode /root/a',
      'modified /root/d/c',
      'removed /root/b',
    ]);
    expect(summary).toMatchObject({ added: 1, removed: 1 });
    const { unified } = await daemon.client.diffFile(source.id, fork.id, '/root/d/c');
    expect(unified).toContain('-c\n+changed\n');
  });

  test('a running sandbox takes in what its fork changed, file by file, and goes on running', async () => {
    await using both = await pair();
    const { source, fork } = both;
    await run(
      fork,
      'mkdir -p /root/x/y; echo deep > /root/x/y/z; ln -s ../a /root/x/link; rm /root/b; chmod 640 /root/a',
    );
    await run(fork, 'chown 1000:1000 /root/x; echo longer > /root/d/c');
    await run(source, 'echo mine > /root/mine');
    const job = await source.jobs.start('sleep 100000');
    const merged = await source.merge(fork);
    expect(merged).toMatchObject({ applied: true, conflicts: [] });
    expect(await run(source, 'cat /root/x/y/z /root/d/c /root/mine; readlink /root/x/link; ls /root')).toBe(
      'deep\nlonger\nmine\n../a\na\nd\nmine\nx',
    );
    expect(await run(source, 'stat -c "%a %u:%g" /root/a /root/x')).toBe('640 0:0\n755 1000:1000');
    expect((await source.jobs.list()).find(({ id }) => id === job.id)?.running).toBe(true);
    await source.restore(merged.undo_snapshot_id!);
    expect(await run(source, 'ls /root')).toBe('a\nb\nd\nmine');
  });

  test.each(['running', 'stopped'])(
    'a %s sandbox takes in attributes, times and names of one file as they are',
    async (state) => {
      await using both = await pair();
      const { source, fork } = both;
      await run(
        fork,
        `echo one > /root/n; ln /root/n /root/d/n2; chmod 2775 /root/d; cp /bin/true /root/able
         setfattr -n user.note -v 0x00ff /root/n; setfattr -n user.note -v a /root/a; setcap cap_net_raw+ep /root/able
         touch -d 2020-02-03T04:05:06.789012345Z /root/n; ln -s nowhere /root/dangling
         touch -h -d 2020-01-01T00:00:00Z /root/dangling`,
      );
      if (state === 'stopped') await source.stop({ grace_s: 0 });
      const { changes } = await source.merge(fork);
      if (state === 'stopped') await source.start();
      const changed = changes.map(({ path, change }) => `${change} ${path}`);
      for (const expected of ['mode /root/a', 'added /root/n', 'added /root/d/n2', 'mode /root/d'])
        expect(changed).toContain(expected);
      expect(await run(source, 'stat -c "%h %a" /root/n /root/d; TZ=UTC stat -c %y /root/n')).toBe(
        '2 644\n1 2775\n2020-02-03 04:05:06.789012345 +0000',
      );
      const [one, other] = (await run(source, 'stat -c %i /root/n /root/d/n2')).split('\n');
      expect(other).toBe(one);
      expect(await run(source, 'readlink /root/dangling; stat -c %Y /root/dangling')).toBe(
        'nowhere\n1577836800',
      );
      const notes = await run(source, 'getfattr --absolute-names -e hex -n user.note /root/n /root/a');
      expect(notes.match(/0x[0-9a-f]+/g)).toEqual(['0x00ff', '0x61']);
      expect(await run(source, 'getcap /root/able')).toBe('/root/able cap_net_raw=ep');
    },
  );

  test('a stopped sandbox takes in the same', async () => {
    await using both = await pair();
    const { source, fork } = both;
    await run(fork, 'rm -r /root/d; echo new > /root/new; ln -s a /root/l');
    await source.stop({ grace_s: 0 });
    expect((await source.merge(fork)).applied).toBe(true);
    await source.start();
    expect(await run(source, 'cat /root/new; readlink /root/l; ls /root')).toBe('new\na\na\nb\nl\nnew');
  });

  test('conflicts are listed by path and nothing is written, unless a side is chosen', async () => {
    await using both = await pair();
    const { source, fork } = both;
    await run(fork, 'echo theirs > /root/a; echo new > /root/new');
    await run(source, 'echo ours > /root/a');
    const refused = await failure(source.merge(fork));
    expect(refused.code).toBe('conflict');
    expect(refused.details?.conflicts).toEqual([{ path: '/root/a', ours: 'modified', theirs: 'modified' }]);
    expect(await run(source, 'cat /root/a; ls /root')).toBe('ours\na\nb\nd');
    const plan = await source.merge(fork, { dry_run: true });
    expect(plan).toMatchObject({ applied: false, undo_snapshot_id: null });
    const settled = await source.merge(fork, { prefer: 'ours' });
    expect(await run(source, 'cat /root/a /root/new')).toBe('ours\nnew');
    expect(await source.merge(fork)).toMatchObject({ changes: [], conflicts: [], undo_snapshot_id: null });
    await source.restore(settled.undo_snapshot_id!);
    await source.merge(fork, { prefer: 'theirs' });
    expect(await run(source, 'cat /root/a')).toBe('theirs');
  });

  test('a side is chosen for single paths, all of them or none are settled, and a path in no conflict is refused', async () => {
    await using both = await pair();
    const { source, fork } = both;
    await run(fork, 'echo theirs > /root/a; echo theirs > /root/b');
    await run(source, 'echo ours > /root/a; echo ours > /root/b');
    const half = await failure(source.merge(fork, { choose: { '/root/a': 'theirs' } }));
    expect(half.code).toBe('conflict');
    const wrong = { '/root/a': 'theirs', '/root/b': 'ours', '/root/d': 'ours' } as const;
    expect((await failure(source.merge(fork, { choose: wrong }))).message).toContain(
      '/root/d is in no conflict',
    );
    expect(await run(source, 'cat /root/a /root/b')).toBe('ours\nours');
    const merged = await source.merge(fork, { prefer: 'ours', choose: { '/root/a': 'theirs' } });
    expect(merged.applied).toBe(true);
    expect(await run(source, 'cat /root/a /root/b')).toBe('theirs\nours');
  });

  test('a second merge brings only what changed since the first, also after a restart of the daemon', async () => {
    await using both = await pair();
    const { source, fork } = both;
    await run(fork, 'echo fork 1 > /root/a; echo fork 1 > /root/b');
    await source.merge(fork);
    await run(source, 'echo mine > /root/a; echo mine > /root/d/c');
    await run(fork, 'echo fork 2 > /root/b');
    await daemon.restart();
    const second = await source.merge(fork);
    expect(second.changes.map(({ path }) => path)).toEqual(['/root/b']);
    expect(second.conflicts).toEqual([]);
    expect(await run(source, 'cat /root/a /root/b /root/d/c')).toBe('mine\nfork 2\nmine');
    // And the other way round: the fork has what it gave already.
    const back = await fork.merge(source);
    expect(back.changes.map(({ path }) => path)).toEqual(['/root/a', '/root/d/c']);
    expect((await source.merge(fork)).changes).toEqual([]);
    await run(fork, 'echo fork 3 > /root/a');
    await run(source, 'echo source 3 > /root/a');
    expect((await failure(source.merge(fork))).details?.conflicts).toEqual([
      { path: '/root/a', ours: 'modified', theirs: 'modified' },
    ]);
  });

  test('a merge that was taken back by a restore is not remembered', async () => {
    await using both = await pair();
    const { source, fork } = both;
    await run(fork, 'echo fork > /root/a');
    const merged = await source.merge(fork);
    await source.snapshot({ name: 'after' });
    await source.restore(merged.undo_snapshot_id!);
    expect((await source.merge(fork)).changes.map(({ path }) => path)).toEqual(['/root/a']);
    await source.restore('after');
    expect((await source.merge(fork)).changes).toEqual([]);
    await fork.snapshot({ name: 'later' });
    const grown = (await daemon.client.snapshots.fork(`${source.id}:after`)).sandboxes[0]!;
    expect((await grown.merge(fork)).changes).toEqual([]);
    await grown.destroy();
  });

  test('what the next merge starts from cannot be deleted, is listed with its size, and goes with its sandbox', async () => {
    const both = await pair();
    const { source, fork } = both;
    await run(fork, 'echo fork > /root/a');
    await source.merge(fork);
    const kept = (await fork.snapshots()).filter(({ tags }) => tags.includes('merge'));
    expect(kept).toHaveLength(1);
    const refused = await failure(daemon.client.snapshots.delete(kept[0]!.id));
    expect(refused).toMatchObject({ code: 'in_use', message: expect.stringContaining(source.name) });
    await eventually('its size is counted', async () => (await fork.snapshots()).at(-1)!.used_bytes !== null);
    for (const { id, tags } of await source.snapshots())
      if (tags.includes('merge')) await daemon.client.snapshots.delete(id);
    await run(fork, 'echo again > /root/b');
    expect((await source.merge(fork)).changes.map(({ path }) => path)).toEqual(['/root/b']);
    await both[Symbol.asyncDispose]();
    const left = (await daemon.client.snapshots.list()).filter(({ sandbox_id: id }) => id === fork.id);
    expect(left).toEqual([]);
  });

  test('two forks of one snapshot merge from where they parted', async () => {
    await using source = await daemon.client.sandboxes.create();
    await run(source, 'echo base > /root/a; echo base > /root/b');
    const snapshot = await source.snapshot();
    const { sandboxes } = await daemon.client.snapshots.fork(snapshot.id, { count: 2 });
    await using left = sandboxes[0]!;
    await using right = sandboxes[1]!;
    await run(left, 'echo left > /root/a');
    await run(right, 'echo right > /root/b');
    const merged = await left.merge(right);
    expect(merged.base_snapshot_id).toBe(snapshot.id);
    expect(await run(left, 'cat /root/a /root/b')).toBe('left\nright');
  });

  test('forks that are merged into one sandbox at the same time are all taken in', async () => {
    await using source = await daemon.client.sandboxes.create();
    await run(source, 'echo base > /root/base');
    const { sandboxes: forks } = await source.fork({ count: 4 });
    await Promise.all(forks.map((fork, index) => run(fork, `echo ${index} > /root/of-${index}`)));
    const merged = await Promise.all(forks.map((fork) => source.merge(fork)));
    expect(merged.map(({ applied }) => applied)).toEqual([true, true, true, true]);
    expect(await run(source, 'cat /root/base /root/of-*')).toBe('base\n0\n1\n2\n3');
    await Promise.all(forks.map((fork) => fork.destroy()));
    const notes = (await source.snapshots()).map(({ note }) => note);
    expect(notes.filter((note) => !note.endsWith('was merged in'))).toEqual([]);
    const ofForks = (await daemon.client.snapshots.list()).filter(
      ({ note }) => note === `as it was merged into ${source.name}`,
    );
    expect(ofForks).toEqual([]);
  });

  test('a merge into a sandbox that is destroyed meanwhile ends, and so does the destruction', async () => {
    await using source = await daemon.client.sandboxes.create();
    const { sandboxes: forks } = await source.fork({ count: 3 });
    const [target, ...others] = forks;
    await Promise.all(others.map((fork, index) => run(fork, `echo ${index} > /root/of-${index}`)));
    const merges = others.map((fork) => target!.merge(fork).catch((error: CoppiceError) => error.code));
    await target!.destroy();
    for (const outcome of await Promise.all(merges))
      expect(typeof outcome === 'string' ? outcome : 'merged').toMatch(/^(cancelled|not_found|merged)$/);
    await Promise.all(others.map((fork) => fork.destroy()));
  });

  test('what cannot be compared is refused', async () => {
    await using source = await daemon.client.sandboxes.create();
    expect((await failure(source.merge(source))).code).toBe('invalid_argument');
    expect((await failure(daemon.client.diff(source.id, 'nobody'))).code).toBe('not_found');
    expect(daemon.traces.snapshots().filter((id) => id.startsWith('tmp-'))).toEqual([]);
  });
});
