import { setTimeout as delay } from 'node:timers/promises';
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

const undosKept = 3;

describe('snapshots', () => {
  let daemon: RunningDaemon;
  beforeAll(async () => {
    daemon = await RunningDaemon.start({ config: { limits: { undo_snapshots: undosKept } } });
  });
  afterAll(() => daemon[Symbol.asyncDispose]());

  test('older and newer snapshots both survive a restore, which brings back exactly their files', async () => {
    await using sandbox = await daemon.client.sandboxes.create();
    await run(sandbox, 'echo one > /root/file');
    await sandbox.snapshot({ name: 'one' });
    await run(sandbox, 'echo two > /root/file; touch /root/new');
    await sandbox.snapshot({ name: 'two' });
    await sandbox.restore('one');
    expect(await run(sandbox, 'cat /root/file; ls /root')).toBe('one\nfile');
    await sandbox.restore('two');
    expect(await run(sandbox, 'cat /root/file; ls /root')).toBe('two\nfile\nnew');
    const named = (await sandbox.snapshots()).filter(({ automatic }) => !automatic);
    expect(named.map(({ name }) => name)).toEqual(['one', 'two']);
  });

  test('a restore keeps what was there, says what undoes it, and is undone by that', async () => {
    await using sandbox = await daemon.client.sandboxes.create();
    const base = await sandbox.snapshot({ name: 'base' });
    await run(sandbox, 'echo mine > /root/file');
    const { undo_snapshot_id: undoId } = await sandbox.restore('base');
    expect(await run(sandbox, 'ls /root')).toBe('');
    const undo = await daemon.client.snapshots.get(undoId!);
    expect(undo).toMatchObject({ automatic: true, has_memory: false, parent_id: base.id, tags: ['undo'] });
    expect(undo.name).toBe(`before-restore-${undoId!.slice(-6)}`);
    await sandbox.restore(undoId!);
    expect(await run(sandbox, 'cat /root/file')).toBe('mine');
    const found = (await daemon.client.lineage()).find(({ id }) => id === undoId);
    expect(found).toMatchObject({ kind: 'snapshot', automatic: true, parent: sandbox.id });
  });

  test('a restore that discards what is there keeps nothing of it', async () => {
    await using sandbox = await daemon.client.sandboxes.create();
    await sandbox.snapshot({ name: 'base' });
    expect(await sandbox.restore('base', { discard: true })).toMatchObject({ undo_snapshot_id: null });
    expect((await sandbox.snapshots()).map(({ name }) => name)).toEqual(['base']);
  });

  test('of what undoes restores the newest are kept, and none outlives the sandbox', async () => {
    const sandbox = await daemon.client.sandboxes.create();
    const base = await sandbox.snapshot({ name: 'base' });
    const undos: (string | null)[] = [];
    for (let round = 0; round < undosKept + 2; round += 1)
      undos.push((await sandbox.restore('base')).undo_snapshot_id);
    const kept = (await sandbox.snapshots()).filter(({ automatic }) => automatic).map(({ id }) => id);
    expect(kept).toEqual(undos.slice(-undosKept));
    await sandbox.destroy();
    await daemon.client.snapshots.delete(base.id);
    const left = [...kept, base.id];
    await eventually('the pool has none of them', () =>
      daemon.traces.snapshots().every((id) => !left.includes(id)),
    );
  });

  test('what undoes a restore can be kept and named: nothing takes it away then but its deletion', async () => {
    const sandbox = await daemon.client.sandboxes.create();
    const { snapshots } = daemon.client;
    const base = await sandbox.snapshot({ name: 'base' });
    await run(sandbox, 'echo mine > /root/kept');
    const { undo_snapshot_id: undoId } = await sandbox.restore('base');
    await expect(snapshots.keep(undoId!, { name: 'base' })).rejects.toMatchObject({ code: 'name_taken' });
    expect(await snapshots.get(undoId!)).toMatchObject({ automatic: true });
    const kept = { id: undoId, name: 'good', note: 'the one that worked', automatic: false };
    expect(await snapshots.keep(undoId!, { name: 'good', note: kept.note })).toMatchObject(kept);
    for (let round = 0; round < undosKept + 1; round += 1) await sandbox.restore('base');
    await daemon.restart();
    expect(await snapshots.keep(`${sandbox.name}:good`)).toMatchObject(kept);
    await sandbox.destroy();
    expect(await snapshots.get(undoId!)).toMatchObject(kept);
    const { sandboxes } = await snapshots.fork(undoId!);
    expect(await run(sandboxes[0]!, 'cat /root/kept')).toBe('mine');
    await sandboxes[0]!.destroy();
    for (const id of [undoId!, base.id]) await snapshots.delete(id);
  });

  test.for(['keep', 'restore'] as const)(
    'a comparison with a sandbox that is busy does not wait for a %s that waits for it',
    async (change) => {
      await using sandbox = await daemon.client.sandboxes.create();
      const { id } = await sandbox.snapshot({ name: 'base' });
      await sandbox.jobs.start('trap "" TERM; echo > /root/armed; while :; do sleep 1; done');
      await run(sandbox, 'while [ ! -e /root/armed ]; do sleep 0.01; done');
      // Each has its place in line before the next one comes.
      const line: Promise<unknown>[] = [sandbox.stop({ grace_s: 1.5 })];
      const changes = {
        keep: () => daemon.client.snapshots.keep(id),
        restore: () => sandbox.restore('base'),
      };
      const others = [
        changes[change],
        () => daemon.client.diff(id, sandbox.id),
        () => daemon.client.snapshots.delete(id),
      ];
      for (const other of others) {
        await delay(200);
        line.push(other());
      }
      // Whoever comes after the deletion finds nothing; that all of them end is what counts.
      await Promise.allSettled(line);
      await expect(daemon.client.snapshots.get(id)).rejects.toMatchObject({ code: 'not_found' });
    },
  );

  test('an undo at which histories part stays, and a merge between them starts there', async () => {
    await using sandbox = await daemon.client.sandboxes.create();
    await sandbox.snapshot({ name: 'base' });
    await run(sandbox, 'echo common > /root/file; echo common > /root/other');
    const { undo_snapshot_id: undoId } = await sandbox.restore('base');
    await sandbox.restore(undoId!);
    // From here on one grows on from the undo by a snapshot of its own, and the sandbox goes on from it too.
    const { sandboxes } = await daemon.client.snapshots.fork((await sandbox.snapshot()).id);
    await using fork = sandboxes[0]!;
    await sandbox.restore(undoId!, { discard: true });
    for (let round = 0; round < undosKept + 1; round += 1) await sandbox.restore(undoId!);
    await run(fork, 'echo changed > /root/file');
    await run(sandbox, 'echo mine > /root/other');
    expect((await sandbox.merge(fork)).base_snapshot_id).toBe(undoId);
    expect(await run(sandbox, 'cat /root/file /root/other')).toBe('changed\nmine');
  });

  test('a snapshot knows its parent, engine and tags, and its sizes once they are counted', async () => {
    await using sandbox = await daemon.client.sandboxes.create();
    const first = await sandbox.snapshot({ name: 'first', tags: ['base'], note: 'clean' });
    await run(sandbox, 'head -c 1000000 /dev/urandom > /root/data');
    const second = await sandbox.snapshot();
    expect(first).toMatchObject({
      parent_id: null,
      engine: 'btrfs',
      tags: ['base'],
      note: 'clean',
      has_memory: false,
    });
    expect(second.parent_id).toBe(first.id);
    await eventually('the size is counted', async () => {
      const { referenced_bytes: bytes } = await daemon.client.snapshots.get(second.id);
      return bytes !== null && bytes >= 1_000_000;
    });
  });

  test('a stopped sandbox is snapshotted and restored, and stays stopped', async () => {
    await using sandbox = await daemon.client.sandboxes.create();
    await run(sandbox, 'echo one > /root/file');
    await sandbox.stop({ grace_s: 0 });
    await sandbox.snapshot({ name: 'one' });
    await sandbox.start();
    await run(sandbox, 'rm /root/file');
    await sandbox.stop({ grace_s: 0 });
    expect(await sandbox.restore('one')).toMatchObject({ state: 'stopped', with_memory: false });
    await sandbox.start();
    expect(await run(sandbox, 'cat /root/file')).toBe('one');
  });

  test('a second snapshot of the same name, and memory where it cannot be kept, are refused', async () => {
    await using sandbox = await daemon.client.sandboxes.create();
    await sandbox.snapshot({ name: 'one' });
    expect((await failure(sandbox.snapshot({ name: 'one' }))).code).toBe('name_taken');
    expect((await failure(sandbox.checkpoint())).code).toBe('unsupported');
    expect(daemon.traces.memories()).toEqual([]);
  });

  test('a snapshot of another sandbox cannot be restored into this one', async () => {
    await using one = await daemon.client.sandboxes.create();
    await using other = await daemon.client.sandboxes.create();
    const foreign = await other.snapshot();
    expect((await failure(one.restore(foreign.id))).code).toBe('not_found');
  });

  test('deleting is refused while a fork grew from it, saying which, and frees the pool afterwards', async () => {
    await using sandbox = await daemon.client.sandboxes.create({ name: 'source' });
    const snapshot = await sandbox.snapshot({ name: 'base' });
    const { sandboxes } = await daemon.client.snapshots.fork(snapshot.id, { name: 'shoot' });
    const refused = await failure(daemon.client.snapshots.delete('source:base'));
    expect(refused.code).toBe('in_use');
    expect(refused.message).toContain('shoot');
    await sandboxes[0]?.destroy();
    await daemon.client.snapshots.delete('source:base');
    expect(daemon.traces.snapshots().filter((id) => id === snapshot.id)).toEqual([]);
  });

  test('snapshots outlive their sandbox, and a new one grows from them', async () => {
    const sandbox = await daemon.client.sandboxes.create({ name: 'short-lived', env: { KEPT: 'yes' } });
    await run(sandbox, 'echo legacy > /root/file');
    await sandbox.snapshot({ name: 'last' });
    await sandbox.destroy();
    await using heir = await daemon.client.sandboxes.create({ from: 'short-lived:last' });
    expect(await run(heir, 'cat /root/file; echo $KEPT')).toBe('legacy\nyes');
  });

  test('forks have their own disk, name, hostname and token; policy, limits and env carry over', async () => {
    await using source = await daemon.client.sandboxes.create({
      name: 'oak',
      env: { A: '1' },
      memory_mb: 200,
    });
    await run(source, 'echo shared > /root/file');
    const { sandboxes, failures } = await source.fork({ count: 3, name_prefix: 'twig', env: { B: '2' } });
    expect(failures).toEqual([]);
    expect(sandboxes.map(({ name }) => name)).toEqual(['twig-1', 'twig-2', 'twig-3']);
    expect(new Set(sandboxes.map(({ token }) => token)).size).toBe(3);
    await Promise.all(sandboxes.map((fork) => run(fork, 'hostname >> /root/file')));
    for (const fork of sandboxes) {
      expect(await run(fork, 'cat /root/file; echo $A$B')).toBe(`shared\n${fork.name}\n12`);
      expect((await fork.inspect()).memory_mb).toBe(200);
    }
    expect(await run(source, 'cat /root/file')).toBe('shared');
    await Promise.all(sandboxes.map((fork) => fork.destroy()));
    expect(await source.snapshots()).toEqual([]);
  });

  test('a fork whose name is taken is refused before a snapshot is taken', async () => {
    await using source = await daemon.client.sandboxes.create();
    expect((await failure(source.fork({ name: source.name }))).code).toBe('name_taken');
    expect(await source.snapshots()).toEqual([]);
  });

  test('forks and sandboxes that nobody named never clash, however many are made at once', async () => {
    await using source = await daemon.client.sandboxes.create({ name: 'many', memory_mb: 64 });
    const snapshot = await source.snapshot();
    const made = await Promise.all(
      Array.from({ length: 20 }, async (_, index) => {
        if (index < 8) return (await source.fork()).sandboxes;
        if (index < 16) return (await daemon.client.snapshots.fork(snapshot.id)).sandboxes;
        return [await daemon.client.sandboxes.create({ memory_mb: 64 })];
      }),
    );
    const names = made.flat().map(({ name }) => name);
    expect(new Set(names).size).toBe(20);
    expect(names.slice(0, 16).sort()).toEqual(
      Array.from({ length: 16 }, (_, n) => `many-fork-${n + 1}`).sort(),
    );
    await Promise.all(made.flat().map((sandbox) => sandbox.destroy()));
  });

  test('a snapshot that is taken while the one before it is deleted has no parent that is gone', async () => {
    await using sandbox = await daemon.client.sandboxes.create();
    const oldest = await sandbox.snapshot();
    for (let round = 0; round < 8; round += 1) {
      const before = await sandbox.snapshot();
      const [after] = await Promise.all([
        sandbox.snapshot(),
        daemon.client.snapshots.delete(before.id),
        sandbox.update({ disk_mb: 1024 + round }),
      ]);
      const listed = await sandbox.snapshots();
      expect(listed.map(({ id }) => id)).toContain(listed.find(({ id }) => id === after.id)!.parent_id);
      await daemon.client.snapshots.delete(after.id);
    }
    expect((await sandbox.snapshot()).parent_id).toBe(oldest.id);
  });

  test('the lineage shows what grew from what', async () => {
    await using source = await daemon.client.sandboxes.create();
    const snapshot = await source.snapshot();
    const { sandboxes } = await daemon.client.snapshots.fork(snapshot.id);
    await using fork = sandboxes[0]!;
    const nodes = await daemon.client.lineage();
    const parentOf = (id: string) => nodes.find((node) => node.id === id)?.parent;
    const image = nodes.find((node) => node.kind === 'image')?.id;
    expect([parentOf(fork.id), parentOf(snapshot.id), parentOf(source.id)]).toEqual([
      snapshot.id,
      source.id,
      image,
    ]);
  });
});
