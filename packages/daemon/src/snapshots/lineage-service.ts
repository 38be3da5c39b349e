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

  async lineage(): Promise<LineageNode[]> {
    const images = await this.#images.list();
    const sandboxes = this.#state.sandboxes.all();
    const snapshots = this.#state.snapshots.all();
    const living = new Set([...sandboxes, ...snapshots, ...images].map((node) => node.id));
    const firstLiving = (...ids: (string | null)[]): string | null =>
      ids.find((id) => id !== null && living.has(id)) ?? null;
    return [
      ...images.map(
        (image): LineageNode => ({
          kind: 'image',
          id: image.id,
          name: image.name,
          parent: null,
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
