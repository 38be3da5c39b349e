import type { DiskStore, ParcelKind, Parcels } from '@coppice/disks';
import { CoppiceError, type exportQuery } from '@coppice/protocol';
import { type Image, parseMemoryTraits } from '@coppice/runtime';
import type { z } from 'zod';
import type { SnapshotRecord } from '../db/snapshot-table.ts';
import type { ImageService } from '../images/image-service.ts';
import type { Journal } from '../journal/journal.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import type { SandboxFinder } from '../sandboxes/sandbox-finder.ts';
import type { SnapshotService } from '../snapshots/snapshot-service.ts';
import { version } from '../version.ts';
import { maxManifestBytes } from './export-format.ts';
import type { ExportManifest, PartName } from './export-manifest.ts';
import { type ExportPart, writeExport } from './write-export.ts';

type ExportOptions = z.output<typeof exportQuery>;

export interface ExportServiceParts {
  readonly journal: Journal;
  readonly locks: KeyedLock;
  readonly finder: SandboxFinder;
  readonly disks: DiskStore;
  readonly images: ImageService;
  readonly parcels: Parcels;
  readonly snapshots: SnapshotService;
}

/** Writes a snapshot or checkpoint down as one file that another machine can take in. */
export class ExportService {
  readonly #parts: ExportServiceParts;
  readonly #images: ImageService;
  readonly #parcels: Parcels;
  readonly #snapshots: SnapshotService;

  constructor(parts: ExportServiceParts) {
    this.#parts = parts;
    this.#images = parts.images;
    this.#parcels = parts.parcels;
    this.#snapshots = parts.snapshots;
  }

  async export(
    ref: string,
    options: ExportOptions,
  ): Promise<{ bytes: AsyncIterable<Uint8Array>; fileName: string }> {
    const { id, sandboxName, name } = this.#parts.finder.snapshot(ref);
    return { bytes: this.#write(id, options), fileName: `${sandboxName}-${name}.coppice` };
  }

  /** The snapshot cannot be deleted until the last byte is fetched, or whoever fetches them has gone away. */
  async *#write(id: string, options: ExportOptions): AsyncGenerator<Buffer, void, undefined> {
    const { locks, finder, journal } = this.#parts;
    const release = this.#snapshots.hold(id, 'exported');
    const entered = Promise.withResolvers<void>();
    const done = Promise.withResolvers<void>();
    void locks.shared(id, () => {
      entered.resolve();
      return done.promise;
    });
    await entered.promise;
    try {
      const snapshot = finder.snapshot(id);
      const image = await this.#images.stored(snapshot.imageId);
      if (options.image && image.layers !== undefined) throw layeredImage(image);
      const manifest = manifestOf(snapshot, image, options);
      yield* writeExport(
        manifest,
        manifest.parts.map((part) => this.#part(part, snapshot)),
      );
      journal.commit((emit) =>
        emit('snapshot.exported', snapshot.sandboxId, {
          snapshot_id: id,
          name: snapshot.name,
          memory: manifest.memory !== null,
        }),
      );
    } finally {
      done.resolve();
      release();
      // It may have been kept for this alone.
      await this.#snapshots.prune(id);
    }
  }

  #part(name: PartName, snapshot: SnapshotRecord): ExportPart {
    const { disks } = this.#parts;
    const trees: Record<PartName, { kind: ParcelKind; directory: string }> = {
      image: { kind: 'image', directory: this.#images.rootfs(snapshot.imageId) },
      disk: { kind: 'disk', directory: `${disks.snapshotDir(snapshot.id)}/upper` },
      memory: { kind: 'memory', directory: disks.memoryDir(snapshot.id) },
    };
    const { kind, directory } = trees[name];
    return { name, content: this.#parcels.pack(kind, directory) };
  }
}

const layeredImage = (image: Image): CoppiceError =>
  new CoppiceError(
    'unsupported',
    `the image ${image.name} is made of layers, which a file does not hold yet`,
    {
      hint: `Export it with --no-image, and pull ${image.name} where it is imported.`,
    },
  );

function manifestOf(snapshot: SnapshotRecord, image: Image, options: ExportOptions): ExportManifest {
  const { shape } = snapshot;
  const traits =
    options.memory && snapshot.memoryBytes !== null
      ? parseMemoryTraits(snapshot.memoryCompatibility ?? '')
      : null;
  const manifest: ExportManifest = {
    kind: traits === null ? 'snapshot' : 'checkpoint',
    coppice_version: version,
    name: snapshot.name,
    note: snapshot.note,
    tags: [...snapshot.tags],
    sandbox_name: snapshot.sandboxName,
    created_at: new Date(snapshot.createdAtMs).toISOString(),
    engine: snapshot.engine,
    driver: snapshot.driver,
    pause_ms: snapshot.pauseMs,
    image: { name: image.name, digest: image.digest },
    limits: { cpus: shape.cpus, memory_mb: shape.memoryMb, disk_mb: shape.diskMb, pids: shape.pids },
    labels: { ...shape.labels },
    network: shape.network,
    idle_timeout_s: shape.idleTimeoutS,
    idle_action: shape.idleAction,
    max_lifetime_s: shape.maxLifetimeS,
    env_names: Object.keys(shape.env).sort(),
    env: options.env ? { ...shape.env } : null,
    memory:
      traits === null
        ? null
        : {
            program: traits.program,
            version: traits.version,
            architecture: traits.architecture,
            cpu_features: [...traits.cpuFeatures],
          },
    parts: [
      ...(options.image ? ['image' as const] : []),
      'disk',
      ...(traits === null ? [] : ['memory' as const]),
    ],
  };
  if (Buffer.byteLength(JSON.stringify(manifest)) > maxManifestBytes)
    throw new CoppiceError('too_large', 'the values of its environment are too long to be exported', {
      hint: 'Export it without them, and give them again where it is imported.',
    });
  return manifest;
}
