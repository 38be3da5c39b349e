import type { LineageNode } from '@coppice/protocol';
import type { State } from '../db/state.ts';
import type { ImageService } from '../images/image-service.ts';

/** The tree of what grew from what: images, the sandboxes and snapshots on them, and what grew from those. */
export class LineageService {
  readonly #state: State;
  readonly #images: ImageService;

  constructor(state: State, images: ImageService) {
    this.#state = state;
    this.#images = images;
  }

  /** Of one project with the images that it stands on, or of all. */
  async lineage(project?: string): Promise<LineageNode[]> {
    const isWithin = (thing: { readonly project: string }) =>
      project === undefined || thing.project === project;
    const sandboxes = this.#state.sandboxes.all().filter(isWithin);
    const snapshots = this.#state.snapshots.all().filter(isWithin);
    const stoodOn = new Set([...sandboxes, ...snapshots].map(({ imageId }) => imageId));
    const images = (await this.#images.list()).filter(({ id }) => project === undefined || stoodOn.has(id));
    const living = new Set([...sandboxes, ...snapshots, ...images].map((node) => node.id));
    const firstLiving = (...ids: (string | null)[]): string | null =>
      ids.find((id) => id !== null && living.has(id)) ?? null;
    const merges = Map.groupBy(this.#state.merges.all(), ({ holder }) => holder);
    const merged = (id: string): string[] =>
      (merges.get(id) ?? []).map(({ mergedId }) => mergedId).filter((from) => living.has(from));
    const restores = new Map(this.#state.merges.restores().map((row) => [row.holder, row]));
    const restored = (id: string): LineageNode['restored'] => {
      const row = restores.get(id);
      if (row === undefined || !living.has(row.snapshotId)) return null;
      return {
        to: row.snapshotId,
        left: firstLiving(row.leftId),
        at: new Date(row.atMs).toISOString(),
      };
    };
    return [
      ...images.map(
        (image): LineageNode => ({
          kind: 'image',
          id: image.id,
          name: image.name,
          parent: null,
          grown_from: null,
          merged: [],
          restored: null,
          state: null,
          automatic: false,
          has_memory: false,
          memory_bytes: null,
          memory_used_bytes: null,
          referenced_bytes: image.size_bytes,
          used_bytes: image.size_bytes,
          created_at: image.created_at,
        }),
      ),
      ...sandboxes.map(
        (sandbox): LineageNode => ({
          kind: 'sandbox',
          id: sandbox.id,
          name: sandbox.name,
          parent: firstLiving(sandbox.parentSnapshotId, sandbox.imageId),
          grown_from: firstLiving(sandbox.baseSnapshotId, sandbox.parentSnapshotId, sandbox.imageId),
          merged: merged(sandbox.id),
          restored: restored(sandbox.id),
          state: sandbox.state,
          automatic: false,
          has_memory: sandbox.pauseKeep === 'memory',
          memory_bytes: null,
          memory_used_bytes: null,
          referenced_bytes: null,
          used_bytes: null,
          created_at: new Date(sandbox.createdAtMs).toISOString(),
        }),
      ),
      ...snapshots.map(
        (snapshot): LineageNode => ({
          kind: 'snapshot',
          id: snapshot.id,
          name: snapshot.name,
          // A snapshot hangs below the sandbox it is of; when that is gone, below what came before it.
          parent: firstLiving(snapshot.sandboxId, snapshot.parentId, snapshot.imageId),
          grown_from: firstLiving(snapshot.parentId, snapshot.imageId),
          merged: merged(snapshot.id),
          restored: restored(snapshot.id),
          state: null,
          automatic: snapshot.automatic,
          has_memory: snapshot.memoryBytes !== null,
          memory_bytes: snapshot.memoryBytes,
          memory_used_bytes: snapshot.memoryUsedBytes,
          referenced_bytes: snapshot.referencedBytes,
          used_bytes: snapshot.usedBytes,
          created_at: new Date(snapshot.createdAtMs).toISOString(),
        }),
      ),
    ];
  }
}
