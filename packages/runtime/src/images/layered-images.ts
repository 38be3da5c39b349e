import { existsSync } from 'node:fs';
import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { CoppiceError, formatImageReference, type ImageReference } from '@coppice/protocol';
import type { ImageRoot } from '../driver.ts';
import { ArchiveFiles } from './archives/archive-files.ts';
import { chooseImage, readArchive } from './archives/read-archive.ts';
import { writeArchive } from './archives/write-archive.ts';
import type { BuildOptions, Image, PackedLayer } from './image.ts';
import { checkMountPoints, ensureGround, groundName, makeRoof } from './layers/frame-layers.ts';
import { LayerProgram, type UnpackLimits } from './layers/layer-program.ts';
import { LayerStack } from './layers/layer-stack.ts';
import { CheckedTar, type Layer, LayerStore, layerName } from './layers/layer-store.ts';
import { BlobStore } from './oci/blob-store.ts';
import { eachAtOnce } from './oci/each-at-once.ts';
import {
  type Descriptor,
  describeDocument,
  mediaTypes,
  parseImageConfig,
  parseManifest,
} from './oci/image-manifest.ts';
import { type ImageSettings, readSettings } from './oci/image-settings.ts';
import { machinePlatform } from './oci/platform.ts';
import {
  checkLayerCount,
  checkPlatform,
  type ImageDocuments,
  type LayerProgress,
  pullImage,
} from './oci/pull-image.ts';
import { type Pushed, type PushOptions, pushImage } from './oci/push-image.ts';
import type { Registries } from './oci/registries.ts';

export interface LayeredImagesOptions {
  readonly layersDir: string;
  readonly blobsDir: string;
  /** coppice-layer. */
  readonly program: string;
  readonly registries: Registries;
  readonly limits: UnpackLimits;
}

/** What is known of an image whose layers are here. */
export interface LayeredContent {
  /** Of its configuration, which names all its layers: two images with the same one are the same. */
  readonly digest: string;
  /** Of what its name stood for in the registry. */
  readonly manifestDigest: string;
  /** Diff ids, lowest first. */
  readonly layers: readonly string[];
  /** The digests of the packed layers. */
  readonly blobs: readonly string[];
  readonly settings: ImageSettings;
  readonly sizeBytes: number;
  readonly fileCount: number;
  readonly warnings: readonly string[];
  readonly documents: { readonly manifest: Buffer; readonly config: Buffer };
}

export interface PullProgress extends BuildOptions {
  readonly onLayer?: (progress: LayerProgress) => void;
}

/**
 * Each layer once, as an overlay takes none twice. Of one that an image has several times, only the topmost shows: it hides whatever
 * lies between it and the others.
 */
const topmostFirst = (layers: readonly string[]): string[] => [...new Set([...layers].reverse())];

const gzipLevel = 4;
const unpackingAtOnce = 2;

/** Images that are made of layers: where these come from, where they lie, and how one becomes the root of a sandbox. */
export class LayeredImages {
  readonly #registries: Registries;
  readonly #limits: UnpackLimits;
  readonly #layers: LayerStore;
  readonly #program: LayerProgram;
  readonly #blobs: BlobStore;
  /** Whose layers are in no image yet. */
  #working = 0;
  #collect: (() => Promise<void>) | undefined;

  private constructor(options: LayeredImagesOptions, layers: LayerStore, program: LayerProgram) {
    this.#registries = options.registries;
    this.#limits = options.limits;
    this.#layers = layers;
    this.#program = program;
    this.#blobs = new BlobStore(options.blobsDir);
  }

  static async open(options: LayeredImagesOptions): Promise<LayeredImages> {
    const { layersDir, limits } = options;
    const program = new LayerProgram(options.program);
    const layers = await LayerStore.open({ directory: layersDir, program, limits });
    await ensureGround(layersDir);
    return new LayeredImages(options, layers, program);
  }

  async pull(reference: ImageReference, options: PullProgress): Promise<LayeredContent> {
    const parts = {
      registries: this.#registries,
      blobs: this.#blobs,
      layers: this.#layers,
      platform: machinePlatform(),
    };
    const pulled = await pullImage(reference, parts, {
      signal: options.signal,
      onLayer: (progress) => {
        options.onLayer?.(progress);
        const { digest, state, doneBytes: done, totalBytes: total } = progress;
        options.onProgress?.({
          phase: `pulling ${formatImageReference(reference)}`,
          detail: `${digest.slice(7, 19)} ${state}`,
          done,
          total,
          unit: 'bytes',
        });
      },
    });
    return this.#describe(pulled);
  }

  /** An image of an archive: the only one that it holds, or the one of that name. */
  async takeArchive(
    tar: AsyncIterable<Buffer>,
    wanted: string | undefined,
    options: PullProgress,
  ): Promise<{ name: string; format: 'docker' | 'oci'; content: LayeredContent }> {
    const { signal } = options;
    const files = await ArchiveFiles.take(tar, this.#blobs, { ...this.#limits, signal });
    const platform = machinePlatform();
    const archive = await readArchive(files, this.#blobs, platform);
    const { image, name } = chooseImage(archive, wanted);
    const documents = await image.open();
    checkPlatform(documents.config, platform, name);
    return { name, format: archive.format, content: await this.takeDocuments(documents, name, options) };
  }

  /** An image whose packed layers are all here: unpacks those that are not yet. */
  async takeDocuments(
    documents: ImageDocuments,
    name: string,
    { signal, onLayer }: PullProgress,
  ): Promise<LayeredContent> {
    const { manifest, config } = documents;
    checkLayerCount(manifest, name);
    await eachAtOnce(manifest.layers, unpackingAtOnce, async ({ digest, size }, index) => {
      const report = (state: LayerProgress['state']): void =>
        onLayer?.({ digest, state, doneBytes: size, totalBytes: size });
      report('unpacking');
      await this.#layers.ensure(config.rootfs.diff_ids[index]!, () => this.#blobs.read(digest), signal);
      report('done');
    });
    return this.#describe(documents);
  }

  /** Documents of an image from elsewhere, refused where they do not belong together or are for another kind of machine. */
  readDocuments(
    { manifestBytes, configBytes }: Pick<ImageDocuments, 'manifestBytes' | 'configBytes'>,
    name: string,
  ): ImageDocuments {
    const parsed = parseManifest(manifestBytes, undefined);
    if (!('manifest' in parsed))
      throw new CoppiceError('invalid_argument', `${name} is described by a list of platforms`);
    const { manifest } = parsed;
    const said = describeDocument(manifest.config.mediaType, configBytes);
    if (said.digest !== manifest.config.digest)
      throw new CoppiceError('invalid_argument', `the two descriptions of ${name} do not belong together`);
    const config = parseImageConfig(configBytes, manifest);
    checkPlatform(config, machinePlatform(), name);
    checkLayerCount(manifest, name);
    const { digest } = describeDocument(mediaTypes.ociManifest, manifestBytes);
    return { digest, manifest, manifestBytes, config, configBytes };
  }

  hasPacked(layer: Descriptor): Promise<boolean> {
    return this.#blobs.has(layer);
  }

  packed(digest: string): AsyncIterable<Buffer> {
    return this.#blobs.read(digest);
  }

  /** Keeps a packed layer that has this digest; anything else is refused. */
  async addPacked(digest: string, packed: AsyncIterable<Buffer>, signal?: AbortSignal): Promise<void> {
    const added = await this.#blobs.add(packed, signal);
    if (added.digest === digest) return;
    throw new CoppiceError('invalid_argument', `what is said to be the layer ${digest} is another one`);
  }

  /** Packs a directory as a layer: the upper of an overlay, or the whole of a root filesystem. */
  async pack(directory: string, signal?: AbortSignal): Promise<PackedLayer> {
    const tar = new CheckedTar(this.#program.pack(directory, this.#limits.maxBytes), this.#limits.maxBytes);
    const packing = createGzip({ level: gzipLevel });
    const feeding = pipeline(tar.bytes(), packing, { signal });
    feeding.catch(() => {});
    const { digest, size } = await this.#blobs.add(packing as AsyncIterable<Buffer>, signal);
    await feeding;
    return { diffId: tar.digest(), blob: { mediaType: mediaTypes.ociLayerGzip, digest, size } };
  }

  /** The image as one tar that other tools read. */
  archive(documents: ImageDocuments, name: string | undefined): AsyncGenerator<Buffer, void, undefined> {
    return writeArchive(documents, name, this.#blobs);
  }

  push(
    reference: ImageReference,
    documents: ImageDocuments,
    elsewhere: (digest: string) => string | undefined,
    options: PushOptions,
  ): Promise<Pushed> {
    const parts = {
      client: this.#registries.client(reference.registry),
      read: (digest: string) => this.#blobs.read(digest),
      elsewhere,
    };
    return pushImage(reference, documents, parts, options);
  }

  /** The work may bring layers and has them to itself until it has made an image of them, or failed. */
  async working<T>(work: () => Promise<T>): Promise<T> {
    this.#working += 1;
    try {
      return await work();
    } finally {
      this.#working -= 1;
      if (this.#working === 0 && this.#collect !== undefined) {
        const collect = this.#collect;
        this.#collect = undefined;
        await collect();
      }
    }
  }

  /** Deletes layers, packed layers and roofs that belong to none of these; not before all work has ended. */
  async keepOnly(
    images: () => Promise<readonly Image[]>,
    { withBlobs }: { withBlobs: boolean },
  ): Promise<void> {
    const collect = async (): Promise<void> => {
      const kept = await images();
      await this.#layers.keepOnly(new Set(kept.flatMap(({ layers }) => layers ?? [])));
      const packed = kept.flatMap((image) => [
        ...(image.blobs ?? []),
        ...(image.packed ? [image.packed.blob.digest] : []),
      ]);
      if (withBlobs) await this.#blobs.keepOnly(new Set(packed));
      const ids = new Set(kept.map(({ id }) => id));
      for (const name of await readdir(this.#layers.directory))
        if (name.startsWith('img_') && !ids.has(name)) await this.dropRoof(name);
    };
    if (this.#working === 0) await collect();
    else this.#collect = collect;
  }

  /** Of layers, and of what they came packed in. */
  async usedBytes(): Promise<number> {
    return this.#layers.usedBytes() + (await this.#blobs.usedBytes());
  }

  /** What a sandbox of the image stands on. */
  root(id: string, layers: readonly string[]): ImageRoot {
    const own = topmostFirst(layers).map((diffId) => `${layerName(diffId)}/fs`);
    return { directory: this.#layers.directory, layers: [`${id}/fs`, ...own, `${groundName}/fs`] };
  }

  /** Refuses an image that no sandbox could be made of. */
  async makeRoof(
    id: string,
    { layers, settings }: Pick<LayeredContent, 'layers' | 'settings'>,
  ): Promise<void> {
    const stack = new LayerStack(
      topmostFirst(layers).map((diffId) => ({
        directory: this.#layers.path(diffId),
        layer: this.#layers.get(diffId)!,
      })),
    );
    checkMountPoints(stack);
    const place = join(this.#layers.directory, id);
    await mkdir(place, { mode: 0o700 });
    makeRoof(join(place, 'fs'), stack, settings);
  }

  async dropRoof(id: string): Promise<void> {
    const place = join(this.#layers.directory, id);
    if (!existsSync(place)) return;
    const removing = join(this.#layers.directory, `.removing-${process.pid}-${id}`);
    await rename(place, removing);
    await rm(removing, { recursive: true, force: true });
  }

  #describe({ digest, manifest, manifestBytes, config, configBytes }: ImageDocuments): LayeredContent {
    const layers = config.rootfs.diff_ids;
    const known = layers.map((diffId) => this.#layers.get(diffId)!);
    const sum = (of: (layer: Layer) => number): number =>
      known.reduce((total, layer) => total + of(layer), 0);
    const devices = sum((layer) => layer.devicesDropped);
    const attributes = sum((layer) => layer.attributesDropped);
    return {
      digest: manifest.config.digest,
      manifestDigest: digest,
      layers,
      blobs: manifest.layers.map((layer) => layer.digest),
      settings: readSettings(config),
      sizeBytes: sum((layer) => layer.bytes),
      fileCount: sum((layer) => layer.files),
      warnings: [
        ...(devices === 0 ? [] : [`${devices} device nodes were left out: sandboxes have their own`]),
        ...(attributes === 0 ? [] : [`${attributes} attributes were left out that mean nothing here`]),
      ],
      documents: { manifest: manifestBytes, config: configBytes },
    };
  }
}
