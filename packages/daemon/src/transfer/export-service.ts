import type { DiskStore, ParcelKind, Parcels } from '@coppice/disks';
import { CoppiceError, type exportSchema } from '@coppice/protocol';
import { type Image, type ImageDocuments, parseMemoryTraits } from '@coppice/runtime';
import type { z } from 'zod';
import type { SnapshotRecord } from '../db/snapshot-table.ts';
import type { ImageService } from '../images/image-service.ts';
import type { Journal } from '../journal/journal.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import type { SandboxFinder } from '../sandboxes/sandbox-finder.ts';
import type { SnapshotService } from '../snapshots/snapshot-service.ts';
import { version } from '../version.ts';
import { maxManifestBytes } from './export-format.ts';
import { type ExportManifest, isLayer, type PartName } from './export-manifest.ts';
import { type ExportPart, writeExport } from './write-export.ts';

type ExportOptions = z.output<typeof exportSchema>;

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
      const carried = await this.#carried(image, options);
      const manifest = manifestOf(snapshot, image, carried, options);
      const sizes = await this.#sizes(manifest, snapshot, image, carried);
      yield* writeExport(
        { ...manifest, sizes },
        manifest.parts.map((part) => this.#part(part, snapshot, carried)),
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

  /** What of the image the file brings: nothing of what is there already. */
  async #carried(image: Image, { image: wanted, base_image: base, have }: ExportOptions): Promise<Carried> {
    const there = new Set(have);
    if (base !== undefined) {
      const known = await this.#images.stored((await this.#images.get(base)).id);
      for (const digest of [known.digest, ...(known.blobs ?? [])]) there.add(digest);
      const shared = there.has(image.digest) || image.blobs?.some((digest) => there.has(digest)) === true;
      if (!shared) throw nothingShared(image, known);
    }
    if (!wanted || there.has(image.digest)) return { parts: [], layers: [] };
    if (image.layers === undefined) return { parts: ['image'], layers: [] };
    const documents = await this.#images.documents(image.id);
    const all = new Map(documents.manifest.layers.map((layer) => [layer.digest, layer]));
    const layers = [...all.values()].filter(({ digest }) => !there.has(digest));
    const names = layers.map(({ digest }) => digest as PartName);
    return { parts: ['image-manifest', 'image-config', ...names], layers, documents };
  }

  /** Known beforehand, so that whoever reads the file can say how far it is. Of an image of one directory it is close, not exact. */
  async #sizes(
    { parts }: Pick<ExportManifest, 'parts'>,
    snapshot: SnapshotRecord,
    image: Image,
    { layers, documents }: Carried,
  ): Promise<Record<string, number>> {
    const sizes: Record<string, number> = {};
    for (const { digest, size } of layers) sizes[digest] = size;
    for (const name of parts) {
      if (name === 'image') sizes[name] = image.sizeBytes + image.fileCount * bytesOfEntry;
      else if (name === 'image-manifest') sizes[name] = documents!.manifestBytes.length;
      else if (name === 'image-config') sizes[name] = documents!.configBytes.length;
      else if (name === 'disk' || name === 'memory')
        sizes[name] = await this.#parcels.measure(name, this.#tree(name, snapshot));
    }
    return sizes;
  }

  #part(name: PartName, snapshot: SnapshotRecord, { layers, documents }: Carried): ExportPart {
    if (name === 'image-manifest') return { name, content: one(documents!.manifestBytes), packs: true };
    if (name === 'image-config') return { name, content: one(documents!.configBytes), packs: true };
    if (isLayer(name)) {
      const packs = !/(gzip|zstd)$/.test(layers.find(({ digest }) => digest === name)!.mediaType);
      return { name, content: this.#images.packedLayer(name), packs };
    }
    const kind = name as ParcelKind;
    return { name, content: this.#parcels.pack(kind, this.#tree(kind, snapshot)), packs: true };
  }

  #tree(kind: ParcelKind, { id, imageId }: SnapshotRecord): string {
    const { disks } = this.#parts;
    if (kind === 'image') return this.#images.rootfs(imageId);
    return kind === 'disk' ? `${disks.snapshotDir(id)}/upper` : disks.memoryDir(id);
  }
}

/** What of its image a file brings. */
interface Carried {
  readonly parts: readonly PartName[];
  readonly layers: ImageDocuments['manifest']['layers'];
  /** Of an image of layers. */
  readonly documents?: ImageDocuments;
}

/** Of a name and what goes with it, as most files have it. */
const bytesOfEntry = 80;

async function* one(bytes: Buffer): AsyncGenerator<Buffer, void, undefined> {
  yield bytes;
}

const nothingShared = (image: Image, base: Image): CoppiceError =>
  new CoppiceError('invalid_argument', `the image ${image.name} shares nothing with ${base.name}`, {
    hint: 'Export it without a base, or name an image that is there and has layers of this one.',
  });

function manifestOf(
  snapshot: SnapshotRecord,
  image: Image,
  carried: Carried,
  options: ExportOptions,
): ExportManifest {
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
    parts: [...carried.parts, 'disk', ...(traits === null ? [] : ['memory' as const])],
    sizes: {},
  };
  if (Buffer.byteLength(JSON.stringify(manifest)) > maxManifestBytes)
    throw new CoppiceError('too_large', 'the values of its environment are too long to be exported', {
      hint: 'Export it without them, and give them again where it is imported.',
    });
  return manifest;
}
