import type { DiskStore } from '@coppice/disks';
import { CoppiceError, type Scope } from '@coppice/protocol';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { State } from '../db/state.ts';
import type { Quotas } from '../tokens/quotas.ts';

export interface SnapshotLimits {
  /** Of the whole home. */
  readonly max_snapshots: number;
  readonly snapshots_per_sandbox: number;
  /** How many times its disk and memory. */
  readonly snapshot_space_per_sandbox: number;
}

export interface SnapshotHoldings {
  readonly count: number;
  readonly maxCount: number;
  /** What one more snapshot would have them hold; null when the disk cannot be read. */
  readonly heldBytes: number | null;
  readonly maxBytes: number;
}

const mebibyte = 2 ** 20;
const inMebibytes = (bytes: number): string => `${Math.ceil(bytes / mebibyte)} MiB`;

/** Tokens that are given to what runs inside. */
const isHeld = (by: Scope['kind']): boolean => by === 'sandbox' || by === 'run';

export interface SnapshotAllowanceParts {
  readonly state: State;
  readonly disks: DiskStore;
  readonly limits: SnapshotLimits;
  readonly quotas: Quotas;
}

/**
 * How many snapshots there may be and how much they may hold. A snapshot keeps what its sandbox deletes later, so without this a
 * sandbox could leave its disk size behind with its own token. Undo snapshots count. An admin token is only held to
 * the number of snapshots of the home, one of a project to that and to its quota.
 */
export class SnapshotAllowance {
  readonly #parts: SnapshotAllowanceParts;
  readonly #limits: SnapshotLimits;

  constructor(parts: SnapshotAllowanceParts) {
    this.#parts = parts;
    this.#limits = parts.limits;
  }

  async holdings(record: SandboxRecord): Promise<SnapshotHoldings> {
    return {
      count: this.#parts.state.snapshots.count(record.id),
      maxCount: this.#limits.snapshots_per_sandbox,
      heldBytes: await this.#heldBytes(record, []).catch(() => null),
      maxBytes: this.#maxBytes(record),
    };
  }

  /** Before a snapshot is taken. */
  assertMayAdd(
    record: SandboxRecord,
    { by, automatic = false }: { readonly by: Scope['kind']; readonly automatic?: boolean },
  ): void {
    const { max_snapshots: most, snapshots_per_sandbox: mostOfOne } = this.#limits;
    const { snapshots } = this.#parts.state;
    const all = snapshots.count();
    if (all >= most)
      throw new CoppiceError('limit_reached', `there are ${all} snapshots, and the limit is ${most}`, {
        hint: 'Delete some (`coppice snapshots` lists them, `coppice rm SANDBOX:SNAPSHOT` deletes one), or raise limits.max_snapshots in config.json.',
        details: { limit: 'max_snapshots', maximum: most },
      });
    if (by !== 'admin' && !automatic) this.#parts.quotas.assertSnapshot(record.owner);
    if (!isHeld(by)) return;
    const own = snapshots.count(record.id);
    if (own >= mostOfOne)
      throw new CoppiceError(
        'limit_reached',
        `sandbox ${record.name} has ${own} snapshots, and its own token may take no more than ${mostOfOne}`,
        {
          hint: `Ask for a deletion (\`coppice rm ${record.name}:SNAPSHOT\`), or for a higher limits.snapshots_per_sandbox in config.json.`,
          details: { limit: 'snapshots_per_sandbox', maximum: mostOfOne },
        },
      );
  }

  /**
   * When a snapshot was just taken and nobody knows of it yet: only now the kernel has counted all that it keeps. Whoever is told no
   * removes it.
   */
  async assertFits(
    record: SandboxRecord,
    taken: { readonly id: string; readonly memoryBytes: number | null },
    by: Scope['kind'],
  ): Promise<void> {
    if (!isHeld(by)) return;
    const heldBytes = (await this.#heldBytes(record, [taken.id])) + (taken.memoryBytes ?? 0);
    const maxBytes = this.#maxBytes(record);
    if (heldBytes <= maxBytes) return;
    throw new CoppiceError(
      'limit_reached',
      `the snapshots of sandbox ${record.name} would hold ${inMebibytes(heldBytes)}; its own token may have them hold ${inMebibytes(maxBytes)}`,
      {
        hint: `Ask for a deletion (\`coppice rm ${record.name}:SNAPSHOT\`), or for a higher limits.snapshot_space_per_sandbox in config.json. A restore with discard keeps nothing.`,
        details: { limit: 'snapshot_space_per_sandbox', held_bytes: heldBytes, maximum_bytes: maxBytes },
      },
    );
  }

  async #heldBytes(record: SandboxRecord, taken: readonly string[]): Promise<number> {
    const snapshots = this.#parts.state.snapshots.ofSandbox(record.id);
    const ids = [...snapshots.map(({ id }) => id), ...taken];
    const memoryBytes = snapshots.reduce(
      (sum, snapshot) => sum + (snapshot.memoryUsedBytes ?? snapshot.memoryBytes ?? 0),
      0,
    );
    return memoryBytes + (await this.#parts.disks.writtenBytes(record.id, ids));
  }

  #maxBytes({ diskMb, memoryMb }: SandboxRecord): number {
    return this.#limits.snapshot_space_per_sandbox * (diskMb + memoryMb) * mebibyte;
  }
}
