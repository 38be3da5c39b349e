import type { DiskStore, Stray as StoredStray, StrayShelf } from '@coppice/disks';
import {
  CoppiceError,
  type IdSource,
  type keepStraySchema,
  madeAtMs,
  type Snapshot,
  type Stray,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { Config } from '../config/config.ts';
import type { SnapshotRecord } from '../db/snapshot-table.ts';
import type { State } from '../db/state.ts';
import type { ImageService } from '../images/image-service.ts';
import type { Journal } from '../journal/journal.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import type { SandboxPlanner } from '../sandboxes/sandbox-plan.ts';
import { shapeOf } from '../sandboxes/shape.ts';
import { snapshotView } from '../sandboxes/views.ts';
import type { SnapshotSizer } from './snapshot-sizer.ts';

export interface StrayServiceParts {
  readonly shelf: StrayShelf;
  readonly state: State;
  readonly journal: Journal;
  readonly locks: KeyedLock;
  readonly disks: DiskStore;
  readonly images: ImageService;
  readonly planner: SandboxPlanner;
  readonly sizer: SnapshotSizer;
  readonly ids: IdSource;
  readonly now: () => number;
  readonly config: Config;
}

/** What recovery set aside because the database does not know it, until its owner says what shall become of it. */
export class StrayService {
  readonly #parts: StrayServiceParts;

  constructor(parts: StrayServiceParts) {
    this.#parts = parts;
  }

  async list(): Promise<Stray[]> {
    return (await this.#parts.shelf.list()).map(({ id, kind }) => ({
      id,
      kind: kind === 'disk' ? 'sandbox' : 'snapshot',
      created_at: new Date(madeAtMs(id) ?? 0).toISOString(),
    }));
  }

  /** Its files become a snapshot. Which image they belong to only its owner can know. */
  async keep(id: string, input: z.output<typeof keepStraySchema>): Promise<Snapshot> {
    const { locks, images, config } = this.#parts;
    return locks.exclusive(`stray ${id}`, async () => {
      const stray = await this.#find(id);
      return images.use(input.image ?? config.default_image, {}, async (image) => {
        const record = this.#record(stray, image, input.name);
        await this.#make(stray, record);
        return snapshotView(record);
      });
    });
  }

  async delete(id: string): Promise<void> {
    const { locks, shelf, journal } = this.#parts;
    await locks.exclusive(`stray ${id}`, async () => {
      await this.#find(id);
      await shelf.remove(id);
      journal.commit((emit) => emit('stray.deleted', null, { id }));
    });
  }

  /** A daemon that dies in the middle leaves the stray, and the next one removes the copy. */
  async #make(stray: StoredStray, record: SnapshotRecord): Promise<void> {
    const { journal, state, disks, shelf, sizer } = this.#parts;
    journal.begin(record.id, { kind: 'import', imageDigest: null });
    try {
      await shelf.copyTo(stray, record.id);
      journal.finish(record.id, (emit) => {
        state.snapshots.insert(record);
        emit('stray.kept', record.sandboxId, { id: stray.id, snapshot_id: record.id, name: record.name });
      });
    } catch (error) {
      await disks.removeSnapshot(record.id);
      journal.finish(record.id, () => {});
      throw error;
    }
    await shelf.remove(stray.id);
    sizer.add(record.id);
  }

  #record(
    { id, kind }: StoredStray,
    image: { readonly id: string; readonly name: string },
    name = `stray-${id.slice(-6)}`,
  ): SnapshotRecord {
    const { planner, ids, disks, now } = this.#parts;
    const plan = planner.plan({ name: 'stray' }, image);
    return {
      id: ids.next('snapshot'),
      sandboxId: kind === 'disk' ? id : ids.next('sandbox'),
      sandboxName: 'stray',
      project: plan.project,
      owner: null,
      runId: null,
      name,
      note: `the files of ${id}, which the database did not know`,
      tags: [],
      parentId: null,
      imageId: image.id,
      imageName: image.name,
      driver: plan.driver,
      engine: disks.engine,
      memoryBytes: null,
      memoryUsedBytes: null,
      memoryLengthBytes: null,
      memoryCompatibility: null,
      pauseMs: null,
      referencedBytes: null,
      usedBytes: null,
      shape: shapeOf(plan),
      automatic: false,
      createdAtMs: now(),
    };
  }

  async #find(id: string): Promise<StoredStray> {
    const found = (await this.#parts.shelf.list()).find((stray) => stray.id === id);
    if (found !== undefined) return found;
    throw new CoppiceError('not_found', `nothing was set aside under the id ${id}`, {
      hint: 'List what was: coppice strays',
    });
  }
}
