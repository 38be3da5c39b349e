import { createHash } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { DiskStore, ParcelCount, ParcelKind, Parcels } from '@coppice/disks';
import type { IdSource } from '@coppice/protocol';
import { CoppiceError, defaultProject, type Imported, type importQuery } from '@coppice/protocol';
import { type DocumentBytes, type ForeignImage, formatMemoryTraits } from '@coppice/runtime';
import type { z } from 'zod';
import type { SnapshotRecord } from '../db/snapshot-table.ts';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import type { ImageRef, ImageService } from '../images/image-service.ts';
import type { Journal } from '../journal/journal.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import { UndoStack } from '../journal/undo-stack.ts';
import { snapshotView } from '../sandboxes/views.ts';
import type { CallOptions } from '../services.ts';
import { directoryBytes } from '../snapshots/directory-bytes.ts';
import type { MemoryPolicy } from '../snapshots/memory/memory-policy.ts';
import type { SnapshotSizer } from '../snapshots/snapshot-sizer.ts';
import {
  damagedFile,
  type ExportFile,
  type FilePart,
  readDocument,
  readManifestText,
  skip,
} from './export-file.ts';
import { type ExportManifest, isLayer, type PartName, parseExportManifest } from './export-manifest.ts';
import type { ImportSpool } from './import-spool.ts';

type ImportInput = z.output<typeof importQuery>;

export interface ImportServiceParts {
  readonly memory: MemoryPolicy;
  readonly state: State;
  readonly journal: Journal;
  readonly locks: KeyedLock;
  readonly disks: DiskStore;
  readonly ids: IdSource;
  readonly log: Log;
  /** Settles when recovery has swept: before that nothing new is made, as it would be swept too. */
  readonly swept: Promise<void>;
  readonly images: ImageService;
  readonly parcels: Parcels;
  readonly spool: ImportSpool;
  readonly sizer: SnapshotSizer;
}

/** A file that was read to its end once: every digest matches, and its trees hold nothing that they may not. */
interface CheckedFile {
  readonly file: ExportFile;
  readonly manifest: ExportManifest;
  readonly counts: ReadonlyMap<PartName, ParcelCount>;
  /** What describes an image of layers, where the file has it. */
  readonly documents?: DocumentBytes;
}

const mib = 1024 ** 2;

/** Takes in what export wrote. The file is a stranger's: nothing of it reaches the store before all of it was checked. */
export class ImportService {
  readonly #parts: ImportServiceParts;

  constructor(parts: ImportServiceParts) {
    this.#parts = parts;
  }

  /** What a file need not bring, by digest. */
  async contents(): Promise<{ have: string[] }> {
    const { images, layers } = await this.#parts.images.contents();
    return { have: [...images, ...layers] };
  }

  async import(
    stream: AsyncIterable<Uint8Array>,
    input: ImportInput,
    { signal }: CallOptions = {},
  ): Promise<Imported> {
    const { images, spool } = this.#parts;
    await this.#parts.swept;
    return spool.with(stream, async (file) => {
      const checked = await this.#check(file, signal);
      const { memory, driver, image } = checked.manifest;
      const compatibility =
        memory === null || input.disk_only
          ? null
          : formatMemoryTraits({ ...memory, cpuFeatures: memory.cpu_features });
      if (compatibility !== null)
        await this.#parts.memory.assertForeignFits({ driver, memoryCompatibility: compatibility });
      // One at a time for each image, so that two files with the same one do not both bring it.
      return this.#parts.locks.exclusive(`image ${image.digest}`, async () => {
        const present = await images.findByDigest(image.digest);
        if (present === undefined) return this.#build(checked, input, compatibility, undefined, signal);
        return images.use(present.id, {}, (found) =>
          this.#build(checked, input, compatibility, found, signal),
        );
      });
    });
  }

  /** A daemon died before it was done: the image that it brought stands on nothing. Its trees are swept as nobody's. */
  async undo(snapshotId: string, imageDigest: string | null): Promise<void> {
    const { images } = this.#parts;
    if (imageDigest !== null) await images.dropUnused(imageDigest);
    this.#parts.journal.finish(snapshotId, () => {});
  }

  async #check(file: ExportFile, signal: AbortSignal | undefined): Promise<CheckedFile> {
    const { parcels } = this.#parts;
    const counts = new Map<PartName, ParcelCount>();
    const documents = new Map<PartName, Buffer>();
    const maxBytes = await this.#parts.disks.freeBytes();
    let manifest: ExportManifest | undefined;
    let seen = 0;
    for await (const part of file.parts()) {
      signal?.throwIfAborted();
      if (manifest === undefined) {
        manifest = parseExportManifest(await readManifestText(part));
        continue;
      }
      const name = manifest.parts[seen];
      if (name === undefined || part.name !== name)
        throw damagedFile('it does not hold what its manifest says');
      seen += 1;
      if (name === 'image-manifest' || name === 'image-config') documents.set(name, await readDocument(part));
      else if (isLayer(name)) await checkLayer(part);
      else {
        const limits = { kind: name as ParcelKind, maxBytes, signal };
        counts.set(name, await parcels.check(part.content, limits).catch(nothingWritten));
      }
    }
    if (manifest === undefined || seen !== manifest.parts.length)
      throw damagedFile('it does not hold what its manifest says');
    const manifestBytes = documents.get('image-manifest');
    const configBytes = documents.get('image-config');
    if (manifestBytes === undefined || configBytes === undefined) return { file, manifest, counts };
    return { file, manifest, counts, documents: { manifestBytes, configBytes } };
  }

  /** Its image where that is made of layers and not here: refused unless each layer is here or in the file. */
  async #foreign({ manifest, documents }: CheckedFile): Promise<ForeignImage | undefined> {
    if (documents === undefined) return undefined;
    const { name, digest } = manifest.image;
    const foreign = await this.#parts.images.readForeign(documents, name).catch(nothingWritten);
    if (foreign.documents.manifest.config.digest !== digest)
      throw damagedFile('its image is not the one that its manifest names');
    const brought = new Set<string>(manifest.parts.filter(isLayer));
    for (const layer of foreign.documents.manifest.layers) brought.delete(layer.digest);
    if (brought.size > 0) throw damagedFile('it holds a layer that its image does not have');
    const lacking = foreign.lacking.filter((layer) => !manifest.parts.includes(layer.digest as PartName));
    if (lacking.length > 0)
      throw missingLayers(
        manifest,
        lacking.map((layer) => layer.digest),
      );
    return foreign;
  }

  /** All of it or nothing: what is made lies under ids that no table has until the one transaction at the end. */
  async #build(
    checked: CheckedFile,
    input: ImportInput,
    memoryCompatibility: string | null,
    present: ImageRef | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Imported> {
    const { images, sizer } = this.#parts;
    const { journal, state, disks, ids, log } = this.#parts;
    const { manifest } = checked;
    const foreign = present === undefined ? await this.#foreign(checked) : undefined;
    if (present === undefined && foreign === undefined && !manifest.parts.includes('image'))
      throw missingImage(manifest);
    const id = ids.next('snapshot');
    const undo = new UndoStack();
    journal.begin(id, { kind: 'import', imageDigest: present === undefined ? manifest.image.digest : null });
    undo.push(`the import ${id}`, () => this.undo(id, present === undefined ? manifest.image.digest : null));
    try {
      journal.step('import.recorded');
      undo.push(`snapshot ${id}`, () => disks.removeSnapshot(id));
      const image = await this.#unpack(
        checked,
        id,
        memoryCompatibility !== null,
        { present, foreign },
        undo,
        signal,
      );
      signal?.throwIfAborted();
      const memory = memoryCompatibility === null ? null : await directoryBytes(disks.memoryDir(id));
      const memoryBytes = memory?.storedBytes ?? null;
      const record: SnapshotRecord = {
        id,
        // A sandbox that is gone: the file must not be able to name one of this home and become part of its history.
        sandboxId: ids.next('sandbox'),
        sandboxName: manifest.sandbox_name,
        project: input.project ?? defaultProject,
        owner: null,
        runId: null,
        name: input.name ?? manifest.name,
        note: manifest.note,
        tags: manifest.tags,
        parentId: null,
        imageId: image.id,
        imageName: image.name,
        driver: manifest.driver,
        engine: disks.engine,
        memoryBytes,
        memoryUsedBytes: null,
        memoryLengthBytes: memory?.lengthBytes ?? null,
        memoryCompatibility,
        pauseMs: manifest.pause_ms,
        referencedBytes: null,
        usedBytes: null,
        shape: shapeOf(manifest),
        automatic: false,
        createdAtMs: Date.parse(manifest.created_at),
      };
      if (images.peek(image.id) === undefined)
        throw new CoppiceError(
          'conflict',
          `the image ${image.name} was removed while the import stood on it`,
        );
      journal.finish(id, (emit) => {
        state.snapshots.insert(record);
        emit('snapshot.imported', record.sandboxId, {
          snapshot_id: id,
          name: record.name,
          memory: memoryBytes !== null,
        });
      });
      journal.step('import.committed');
      sizer.add(id);
      return {
        ...snapshotView(record),
        image_added: present === undefined,
        memory_left_out: manifest.memory !== null && memoryBytes === null,
        missing_env: manifest.env === null ? manifest.env_names : [],
        host_ports_left_out: manifest.network.allow_host_ports,
      };
    } catch (error) {
      await undo.run(log);
      if ((error as Error).name === 'AbortError')
        throw new CoppiceError('cancelled', 'the import was given up', { cause: error });
      throw error;
    }
  }

  async #unpack(
    { file, manifest, counts }: CheckedFile,
    id: string,
    withMemory: boolean,
    { present, foreign }: { present: ImageRef | undefined; foreign: ForeignImage | undefined },
    undo: UndoStack,
    signal: AbortSignal | undefined,
  ): Promise<ImageRef> {
    const { images, parcels } = this.#parts;
    const { disks, journal } = this.#parts;
    let image = present;
    const into = (kind: ParcelKind, content: AsyncIterable<Buffer>, directory: string) =>
      parcels.unpack(content, directory, { kind, maxBytes: Number.MAX_SAFE_INTEGER, signal });
    const draft = `import-${id}`;
    const parts = file.parts();
    for await (const { name, content } of parts) {
      if (name === 'image-config' && foreign !== undefined) {
        await skip(content);
        const layers = manifest.parts.filter(isLayer);
        const lacking = new Set(foreign.lacking.map(({ digest }) => digest));
        image = await images.importLayers(
          foreign.documents,
          manifest.image.name,
          async (add) => {
            for (let left = layers.length; left > 0; left -= 1) {
              const { name: digest, content: packed } = (await parts.next()).value as FilePart;
              await (lacking.has(digest) ? add(digest, packed) : skip(packed));
            }
          },
          signal,
        );
        journal.step('import.image-made');
      } else if (name === 'image' && image === undefined) {
        const { name: imageName, digest } = manifest.image;
        image = await images.importTree(imageName, digest, async (rootfs) => {
          await into('image', content, rootfs);
        });
        journal.step('import.image-made');
      } else if (name === 'disk') {
        undo.push(`disk ${draft}`, () => disks.removeDisk(draft));
        await disks.createDisk(draft, roomFor(manifest, counts.get('disk')!));
        await into('disk', content, join(disks.diskDir(draft), 'upper'));
        journal.step('import.disk-made');
      } else if (name === 'memory' && withMemory) {
        await mkdir(disks.memoryDir(id), { mode: 0o700 });
        await into('memory', content, disks.memoryDir(id));
      } else await skip(content);
    }
    await disks.snapshotDisk(draft, id);
    journal.step('import.taken');
    await disks.removeDisk(draft);
    return image!;
  }
}

/** Its bytes are counted already; blocks that files shared where it came from are written apart here. */
const roomFor = ({ limits }: ExportManifest, { bytes, entries }: ParcelCount): number =>
  Math.max(limits.disk_mb * mib, bytes * 2 + entries * 8192 + 16 * mib);

const shapeOf = (manifest: ExportManifest): SnapshotRecord['shape'] => ({
  cpus: manifest.limits.cpus,
  memoryMb: manifest.limits.memory_mb,
  diskMb: manifest.limits.disk_mb,
  pids: manifest.limits.pids,
  env: manifest.env ?? {},
  labels: manifest.labels,
  // A file from elsewhere opens nothing of this machine.
  network: { ...manifest.network, allow_host_ports: [] },
  idleTimeoutS: manifest.idle_timeout_s,
  idleAction: manifest.idle_action,
  maxLifetimeS: manifest.max_lifetime_s,
});

const missingImage = ({ image }: ExportManifest): CoppiceError =>
  new CoppiceError(
    'not_found',
    `the file stands on the image ${image.name} (${image.digest}), which is neither here nor in it`,
    {
      hint: 'Nothing was written. Export again without --no-image, or bring the image here first: `coppice images pull` or `import`.',
    },
  );

const missingLayers = ({ image }: ExportManifest, digests: readonly string[]): CoppiceError =>
  new CoppiceError(
    'not_found',
    `the file lacks ${digests.length === 1 ? 'a layer' : `${digests.length} layers`} of the image ${image.name} that ${digests.length === 1 ? 'is' : 'are'} not here either: ${digests.slice(0, 5).join(', ')}`,
    {
      details: { lacking: [...digests] },
      hint: 'Nothing was written. Export again without a base, or bring the image that was named as the base here first.',
    },
  );

/** A layer is named by its digest; what is in it is checked when it is unpacked. */
async function checkLayer({ name, content }: FilePart): Promise<void> {
  const hash = createHash('sha256');
  for await (const piece of content) hash.update(piece);
  if (`sha256:${hash.digest('hex')}` !== name) throw damagedFile('a layer is not what its name says');
}

const nothingWritten = (error: unknown): never => {
  if (!(error instanceof CoppiceError) || error.code === 'internal' || error.message.startsWith('the file'))
    throw error;
  const said = error.code === 'too_large' ? 'no_space' : error.code;
  throw new CoppiceError(said, `the file is refused: ${error.message}`, {
    hint:
      said === 'no_space'
        ? 'Nothing was written. Delete snapshots or images, or give the home a larger disk.'
        : 'Nothing was written. Take only files from people you trust, or export it again.',
    cause: error,
  });
};
