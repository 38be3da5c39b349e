import { existsSync } from 'node:fs';
import type { DiskStore } from '@coppice/disks';
import { CoppiceError } from '@coppice/protocol';
import { memoryMisfit } from '@coppice/runtime';
import type { SandboxRecord } from '../../db/sandbox-table.ts';
import type { SnapshotRecord } from '../../db/snapshot-table.ts';
import type { Drivers } from '../../sandboxes/machine-starter.ts';
import { directoryBytes } from '../directory-bytes.ts';

/** What is left of it can still be had. */
export const lossHint =
  'Export it with --no-memory and import that, if its files are there; else import it from an export, or delete it.';

type KeptMemory = Pick<SnapshotRecord, 'driver' | 'memoryCompatibility'>;

/**
 * Whether memory can be kept here, and whether memory that was kept can go on here. Each question is asked before anything
 * is touched: never a checkpoint, a pause or a fork that silently lacks memory.
 */
export class MemoryPolicy {
  readonly #drivers: Drivers;
  /** Why a driver keeps no memory, null where it does. */
  readonly #known = new Map<string, string | null>();
  readonly #disks: Pick<DiskStore, 'memoryDir' | 'snapshotDir'>;

  constructor(drivers: Drivers, disks: Pick<DiskStore, 'memoryDir' | 'snapshotDir'>) {
    this.#drivers = drivers;
    this.#disks = disks;
  }

  /** Asks every driver once, so that a create can say what is known without waiting for it. */
  async learn(): Promise<void> {
    for (const driver of Object.values(this.#drivers))
      this.#known.set(driver.name, (await driver.memoryRefusal()) ?? null);
  }

  /** What to say to whoever made a sandbox that cannot keep memory; null where it can, or where nobody knows yet. */
  notice(driver: SandboxRecord['driver']): string | null {
    const refusal = this.#known.get(driver) ?? null;
    if (refusal === null) return null;
    const other = [...this.#known].find(([, why]) => why === null)?.[0];
    const way =
      other === undefined
        ? 'Run `coppice doctor` to see what is missing.'
        : `Create it with \`--driver ${other}\` for these.`;
    return `checkpoint, pause and sleep need memory to be kept, which the driver ${driver} cannot here: ${refusal}. ${way}`;
  }

  async assertKeeps({ driver, name }: Pick<SandboxRecord, 'driver' | 'name'>, hint: string): Promise<void> {
    const refusal = await this.#drivers[driver].memoryRefusal();
    if (refusal === undefined) return;
    throw new CoppiceError(
      'unsupported',
      `the driver ${driver} of sandbox ${name} cannot keep memory: ${refusal}`,
      { hint },
    );
  }

  /** An idle timeout pauses and never kills, unless its owner said `stop` by name. */
  async assertIdles(plan: Pick<SandboxRecord, 'driver' | 'idleTimeoutS' | 'idleAction'>): Promise<void> {
    if (plan.idleTimeoutS === null || plan.idleAction === 'stop') return;
    const refusal = await this.#drivers[plan.driver].memoryRefusal();
    if (refusal === undefined) return;
    throw new CoppiceError(
      'unsupported',
      `an idle sandbox of the driver ${plan.driver} cannot be paused: its memory cannot be kept here: ${refusal}`,
      { hint: 'Use the driver gvisor, or idle_action stop, which ends its processes and keeps the disk.' },
    );
  }

  /** That a checkpoint of this home can go on. One without memory always can. */
  async assertFits(snapshot: SnapshotRecord): Promise<void> {
    if (snapshot.memoryBytes === null) return;
    const loss = await this.loss(snapshot);
    if (loss !== undefined)
      throw new CoppiceError('corrupt', `checkpoint ${snapshot.name} cannot go on: ${loss}`, {
        hint: lossHint,
      });
    const misfit = await this.#misfit(snapshot);
    if (misfit === undefined) return;
    throw new CoppiceError(
      'unsupported',
      `the memory of checkpoint ${snapshot.name} cannot go on here: ${misfit}`,
      { hint: 'Export it with --no-memory and import that: its files are whole.' },
    );
  }

  /** What a loss of power took of a snapshot, in words; undefined where it is whole. */
  async loss({ id, memoryBytes, memoryLengthBytes }: SnapshotRecord): Promise<string | undefined> {
    if (!existsSync(this.#disks.snapshotDir(id))) return 'its files are gone';
    if (memoryBytes === null) return undefined;
    const directory = this.#disks.memoryDir(id);
    if (!existsSync(directory)) return 'its memory is gone';
    const { lengthBytes } = await directoryBytes(directory);
    if (memoryLengthBytes === null || lengthBytes === memoryLengthBytes) return undefined;
    return `${memoryLengthBytes - lengthBytes} bytes of its memory are gone`;
  }

  /** Whether memory goes along to a new sandbox of this driver; throws where it should and cannot. */
  goesAlong(snapshot: SnapshotRecord, driver: SandboxRecord['driver'] | undefined): boolean {
    if (snapshot.memoryBytes === null) return false;
    if (driver === undefined || driver === snapshot.driver) return true;
    throw new CoppiceError(
      'unsupported',
      `the checkpoint ${snapshot.name} was made by the driver ${snapshot.driver}; ${driver} cannot go on with its memory`,
      { hint: 'Leave the driver out.' },
    );
  }

  /** That memory which somebody else wrote can go on, and may. */
  async assertForeignFits(memory: KeptMemory): Promise<void> {
    const misfit = this.#drivers[memory.driver].takesForeignMemory
      ? await this.#misfit(memory)
      : `the driver ${memory.driver} restores memory as root, so whoever wrote the file would be root of this machine`;
    if (misfit === undefined) return;
    throw new CoppiceError('unsupported', `the memory in the file cannot go on here: ${misfit}`, {
      hint: 'Nothing was written. Import its files alone with --disk-only.',
      details: { reason: 'incompatible_memory', disk_only_works: true },
    });
  }

  /** What differs between the runtime and processor that the memory was kept on and those here. */
  async #misfit({ driver, memoryCompatibility: kept }: KeptMemory): Promise<string | undefined> {
    const { memoryCompatibility: here } = await this.#drivers[driver].probe();
    return memoryMisfit(kept ?? '', here);
  }
}
