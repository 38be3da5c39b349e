import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon, whereMounts } from '@coppice/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { PowerCutDisk } from './power-cut-disk.ts';

const files = 20;
const cuts = 6;

/** What was answered: each sandbox and snapshot by its name, with the number that all its files hold. */
interface Facts {
  readonly sandboxes: ReadonlyMap<string, number>;
  readonly snapshots: ReadonlyMap<string, number>;
}

interface Cut {
  readonly image: string;
  /** What was on the disk before, as everybody had waited for it: none of it may be lost. */
  readonly old: Facts;
}

const copyOf = ({ sandboxes, snapshots }: Facts): Facts => ({
  sandboxes: new Map(sandboxes),
  snapshots: new Map(snapshots),
});

describe('a home whose power goes', whereMounts('ext4', 'xfs'), () => {
  let below: string;
  let disk: PowerCutDisk;
  let daemon: RunningDaemon;
  const sandboxes = new Map<string, number>();
  const snapshots = new Map<string, number>();
  let last = 0;
  /** The number that a restore or a merge took away, by the snapshot that undoes it. */
  const replaced = new Map<string, number>();

  beforeEach(async () => {
    last = 0;
    for (const facts of [sandboxes, snapshots, replaced]) facts.clear();
    below = mkdtempSync(join(tmpdir(), 'coppice-power-'));
    disk = await PowerCutDisk.create('ext4', below, 3 * 1024 ** 3);
    daemon = await RunningDaemon.start({ below: disk.path });
  });
  afterEach(async () => {
    await daemon[Symbol.asyncDispose]();
    await disk[Symbol.asyncDispose]();
    rmSync(below, { recursive: true });
  });

  const at = (name: string): Sandbox => daemon.client.sandboxes.at(name);

  /** All files of a sandbox hold the same number. Nobody waits for the disk: that would write down what others did as well. */
  async function number(name: string): Promise<void> {
    last += 1;
    const command = `mkdir -p /root/n; for i in $(seq ${files}); do echo ${last} > /root/n/$i; done`;
    expect((await at(name).exec(command)).exit_code).toBe(0);
    sandboxes.set(name, last);
  }

  async function take(name: string, round: number): Promise<void> {
    await at(name).snapshot({ name: `r${round}` });
    snapshots.set(`${name}:r${round}`, sandboxes.get(name)!);
  }

  /** All that the daemon does to disks, round after round. */
  async function work(signal: AbortSignal): Promise<void> {
    for (let round = 1; !signal.aborted; round += 1) {
      const name = `s${round % 3}`;
      if (!sandboxes.has(name)) await daemon.client.sandboxes.create({ name });
      await number(name);
      await take(name, round);
      if (round % 2 === 0) {
        await number(name);
        const { undo_snapshot_id: undo } = await at(name).restore(`r${round}`);
        replaced.set(undo!, sandboxes.get(name)!);
        sandboxes.set(name, snapshots.get(`${name}:r${round}`)!);
      }
      if (round % 3 === 0) {
        const fork = `f${round}`;
        await at(name).fork({ name: fork });
        sandboxes.set(fork, sandboxes.get(name)!);
        await number(fork);
        const { undo_snapshot_id: undo } = await at(name).merge(fork);
        replaced.set(undo!, sandboxes.get(name)!);
        sandboxes.set(name, sandboxes.get(fork)!);
        sandboxes.delete(fork);
        await at(fork).destroy();
      }
      const old = `${name}:r${round - 6}`;
      if (snapshots.has(old)) {
        // Deleting it may be lost too, so it is nobody's fact from here on.
        snapshots.delete(old);
        await daemon.client.snapshots.delete(old);
      }
    }
  }

  const numbersIn = (directory: string): Set<number> =>
    new Set(readdirSync(directory).map((name) => Number(readFileSync(join(directory, name), 'utf8'))));

  /** In one tree: whole, and of one moment. */
  function numberIn(upper: string): number {
    const directory = join(upper, 'root/n');
    expect(readdirSync(directory)).toHaveLength(files);
    const found = numbersIn(directory);
    expect(found.size).toBe(1);
    return [...found][0]!;
  }

  /** Where the last that was done to it is known to have replaced its files, they are not the old ones. */
  async function isWhatEventsSay(id: string): Promise<void> {
    const { events } = await daemon.client.events.list({ sandbox: id, limit: 10_000 });
    const replacements = events.filter(
      ({ type }) => type === 'sandbox.restored' || type === 'sandbox.merged',
    );
    const before = replaced.get(String(replacements.at(-1)?.data.undo_snapshot_id));
    if (before === undefined) return;
    const directory = join(daemon.home, 'pool/disks', id, 'upper/root/n');
    expect({ id, ...replacements.at(-1), found: [...numbersIn(directory)] }).not.toMatchObject({
      found: [before],
    });
  }

  async function look({ old }: Cut): Promise<void> {
    await daemon.restart();
    const gone = (await daemon.client.doctor()).findings.map(({ message }) => message).join('\n');
    const known = await daemon.client.snapshots.list();
    for (const { id, sandbox_name: of, name, automatic } of known) {
      if (automatic || gone.includes(id)) continue;
      const found = numberIn(join(daemon.home, 'pool/snapshots', id, 'upper'));
      const expected = old.snapshots.get(`${of}:${name}`);
      if (expected !== undefined) expect(found).toBe(expected);
    }
    const names = new Set(known.map(({ sandbox_name: of, name }) => `${of}:${name}`));
    for (const name of old.snapshots.keys()) expect(names).toContain(name);
    for (const name of old.snapshots.keys()) {
      const { id } = known.find((one) => `${one.sandbox_name}:${one.name}` === name)!;
      expect(gone).not.toContain(id);
    }
    for (const { id, name, failure } of await daemon.client.sandboxes.list()) {
      if (failure?.includes('disk')) {
        expect([...old.sandboxes.keys()]).not.toContain(name);
        await at(name).destroy();
        continue;
      }
      await at(name).start();
      await isWhatEventsSay(id);
      expect((await at(name).exec('echo here')).stdout).toBe('here\n');
      await at(name).snapshot({ name: 'after' });
    }
    for (const name of old.sandboxes.keys())
      expect((await daemon.client.sandboxes.list()).map((one) => one.name)).toContain(name);
    const made = await daemon.client.sandboxes.create();
    expect((await made.exec('echo here')).stdout).toBe('here\n');
  }

  test('starts again: nothing old is lost, nothing is torn, and what is said is so', async () => {
    const held: Cut[] = [];
    const abort = new AbortController();
    const working = work(abort.signal);
    working.catch(() => abort.abort());
    for (let cut = 0; cut < cuts && !abort.signal.aborted; cut += 1) {
      await sleep(500 + Math.random() * 2000);
      // As after half a minute: all that was answered before is on the disk.
      const old = copyOf({ sandboxes, snapshots });
      execFileSync('sync', ['--file-system', join(daemon.home, 'pool')]);
      execFileSync('sync', ['--file-system', disk.path]);
      await sleep(Math.random() * 3000);
      // The database may be on the disk sooner than what it tells of.
      if (cut % 2 === 0) execFileSync('sync', ['--file-system', disk.path]);
      // What is deleted since was wanted gone.
      for (const name of old.snapshots.keys())
        if (!snapshots.has(name)) (old.snapshots as Map<string, number>).delete(name);
      for (const name of old.sandboxes.keys())
        if (!sandboxes.has(name)) (old.sandboxes as Map<string, number>).delete(name);
      held.push({ image: await disk.hold(), old });
    }
    abort.abort();
    await working;
    await daemon.kill('SIGKILL');
    expect((await daemon.run(['--purge'])).code).toBe(0);
    for (const cut of held) {
      await disk.become(cut.image);
      await look(cut);
      await daemon.kill('SIGKILL');
      expect((await daemon.run(['--purge'])).code).toBe(0);
    }
  });

  /** Cuts the power when the database is on the disk, whatever else is; then starts again. */
  async function cutNow(): Promise<void> {
    execFileSync('sync', ['--file-system', disk.path]);
    const image = await disk.hold();
    await daemon.kill('SIGKILL');
    expect((await daemon.run(['--purge'])).code).toBe(0);
    await disk.become(image);
    await daemon.restart();
  }

  test('has restored what it says that it restored', async () => {
    await daemon.client.sandboxes.create({ name: 's' });
    await number('s');
    await at('s').snapshot({ name: 'first' });
    await number('s');
    await at('s').restore('first');
    await cutNow();
    const { id } = await at('s').inspect();
    expect(numberIn(join(daemon.home, 'pool/disks', id, 'upper'))).toBe(1);
  });

  test('has merged what it says that it merged', async () => {
    await daemon.client.sandboxes.create({ name: 's' });
    await number('s');
    await at('s').fork({ name: 'f' });
    await number('f');
    await at('s').merge('f');
    await cutNow();
    const { id } = await at('s').inspect();
    expect(numberIn(join(daemon.home, 'pool/disks', id, 'upper'))).toBe(2);
  });
});
