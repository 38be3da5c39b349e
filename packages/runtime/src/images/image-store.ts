import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { CoppiceError, formatImageReference, parseImageReference } from '@coppice/protocol';
import type { ImageRoot } from '../driver.ts';
import { openArchive } from './archive-format.ts';
import { looksLikeImage } from './archives/archive-kind.ts';
import { buildDebianRootfs, debianSuite } from './debian-rootfs.ts';
import { copyDirectoryRootfs } from './directory-rootfs.ts';
import { type ExtractOptions, extractArchive } from './extract-rootfs.ts';
import { buildHostRootfs } from './host-rootfs.ts';
import type { BuildOptions, BuiltRootfs, Image } from './image.ts';
import { checkImageName, checkImportName } from './image-name.ts';
import { buildFailure, ImageShelf, type ImageShelfOptions, nameTaken } from './image-shelf.ts';
import type { LayeredImages, PullProgress } from './layered-images.ts';
import { LayeredStore } from './layered-store.ts';
import { readManifest } from './manifest.ts';
import type { ImageSettings } from './oci/image-settings.ts';

export interface ImageStoreOptions extends ImageShelfOptions {
  /** For images of registries; without it there are none. */
  readonly layered?: LayeredImages;
  /** Whether what is not here is pulled when it is first asked for; on unless told otherwise. */
  readonly pullMissing?: boolean;
  /** What the files of one imported image may add up to. */
  readonly maxBytes?: number;
  readonly maxEntries?: number;
}

export const defaultMaxBytes = 64 * 2 ** 30;
export const defaultMaxEntries = 4_000_000;

type FillRootfs = (rootfs: string) => Promise<BuiltRootfs>;

/**
 * The images of a home. One process owns them; within it any number of builds may run at once. Those of one directory are made
 * here, those of layers by `layered`.
 */
export class ImageStore {
  readonly #shelf: ImageShelf;
  readonly #layered: LayeredStore | undefined;
  readonly #pullMissing: boolean;
  readonly #limits: Pick<ExtractOptions, 'maxBytes' | 'maxEntries'>;

  private constructor(shelf: ImageShelf, options: ImageStoreOptions) {
    this.#shelf = shelf;
    this.#layered = options.layered && new LayeredStore(shelf, options.layered);
    this.#pullMissing = options.pullMissing ?? true;
    this.#limits = {
      maxBytes: options.maxBytes ?? defaultMaxBytes,
      maxEntries: options.maxEntries ?? defaultMaxEntries,
    };
  }

  /** Removes what earlier processes left half made. */
  static async open(options: ImageStoreOptions): Promise<ImageStore> {
    const shelf = new ImageShelf(options);
    await shelf.directory.sweep();
    const store = new ImageStore(shelf, options);
    // With a record that cannot be read nothing is deleted, as nobody knows what it stands on; whoever asks for it is told.
    const images = await store.list().catch(() => undefined);
    for (const image of images ?? []) store.#layered?.know(image);
    if (images !== undefined) await store.#layered?.collect({ withBlobs: false });
    return store;
  }

  /** Those that are made of layers. */
  get layered(): LayeredStore {
    if (this.#layered !== undefined) return this.#layered;
    throw new CoppiceError('unsupported', 'this store has no images of layers');
  }

  /** What a sandbox of the image stands on; never to be written to. */
  root(id: string): ImageRoot {
    return this.#layered?.root(id) ?? { directory: join(this.#shelf.directory.path, id), layers: ['rootfs'] };
  }

  /** The same as directories, topmost first. */
  directories(id: string): string[] {
    const { directory, layers } = this.root(id);
    return layers.map((layer) => join(directory, layer));
  }

  /** What the image says about processes that run in it; undefined where it says nothing. */
  settings(id: string): ImageSettings | undefined {
    return this.#layered?.settings(id);
  }

  /** The one directory of an image that is not made of layers. */
  rootfs(id: string): string {
    return this.#shelf.directory.rootfs(id);
  }

  /** In the order in which they were made. */
  list(): Promise<Image[]> {
    return this.#shelf.list();
  }

  /** By id or name; a name without a tag is also that of the tag `latest`. */
  find(nameOrId: string): Promise<Image | undefined> {
    return this.#shelf.find(nameOrId);
  }

  get(nameOrId: string): Promise<Image> {
    return this.#shelf.get(nameOrId);
  }

  /** Like get, but makes what Coppice can make itself, and pulls what it cannot, when it is first asked for. */
  async ensure(nameOrId: string, options: PullProgress = {}): Promise<Image> {
    const existing = await this.find(nameOrId);
    if (existing !== undefined) return existing;
    if (nameOrId === 'host') return this.#joinOrBuild('host', options, (rootfs) => fillHost(rootfs, options));
    const suite = debianSuite(nameOrId);
    if (suite !== undefined) {
      const limits = { ...options, ...this.#limits };
      return this.#joinOrBuild(nameOrId, options, (rootfs) => buildDebianRootfs(suite, rootfs, limits));
    }
    const name = formatImageReference(parseImageReference(nameOrId));
    if (this.#layered === undefined || !this.#pullMissing || isId(nameOrId)) return this.get(nameOrId);
    return this.#layered.pull(name, options).catch((error: unknown) => {
      throw error instanceof CoppiceError ? notHere(name, error) : error;
    });
  }

  /** Deletes layers that no image has, and downloads that were begun. */
  async collect(): Promise<void> {
    await this.#layered?.collect();
  }

  /** Of all images together, each layer once. */
  async usedBytes(): Promise<number> {
    const plain = (await this.list()).filter(({ layers }) => layers === undefined);
    const own = plain.reduce((total, { sizeBytes }) => total + sizeBytes, 0);
    return own + ((await this.#layered?.usedBytes()) ?? 0);
  }

  /**
   * From a tar archive, plain, gzip or zstd: a root filesystem, or an image as `docker save` and OCI tools write it. Only the latter
   * may bring its own name. The stream is destroyed at the end.
   */
  async importArchive(
    name: string | undefined,
    stream: Readable,
    options: PullProgress = {},
  ): Promise<Image> {
    try {
      const { format, tar } = await openArchive(stream);
      const { isImage, whole } = await looksLikeImage(tar);
      if (isImage && this.#layered !== undefined)
        return await this.#layered.importArchive(name, whole, options);
      if (name === undefined)
        throw new CoppiceError('invalid_argument', 'an archive of a root filesystem needs a name', {
          hint: 'Give one: `coppice images import ARCHIVE NAME`.',
        });
      checkImportName(name);
      return await this.#build(name, options, async (rootfs) => {
        const limits = { ...options, ...this.#limits };
        const { warnings } = await extractArchive({ format, tar: whole }, rootfs, limits);
        return { source: { kind: 'archive', format }, warnings };
      });
    } finally {
      stream.destroy();
    }
  }

  /** Takes a root filesystem from a directory of this machine. */
  async importDirectory(name: string, path: string, options: BuildOptions = {}): Promise<Image> {
    checkImportName(name);
    const limits = { ...options, ...this.#limits };
    return this.#build(name, options, (rootfs) => copyDirectoryRootfs(path, rootfs, limits));
  }

  /**
   * Takes a root filesystem that was an image elsewhere, under a name that is still free. What `fill` writes must have
   * the digest that it had there, or nothing is taken.
   */
  async importTree(
    name: string,
    digest: string,
    fill: (rootfs: string) => Promise<void>,
    options: BuildOptions = {},
  ): Promise<Image> {
    return this.#build(await this.#freeName(name, digest), options, async (rootfs) => {
      await fill(rootfs);
      const content = digest.startsWith('sha256:');
      const manifest = await readManifest(`${rootfs}/`, { content, signal: options.signal });
      if (manifest.digest === digest) return { source: { kind: 'export' }, warnings: [], manifest };
      throw new CoppiceError(
        'invalid_argument',
        `the files of the image ${name} are not those that its digest is of`,
      );
    });
  }

  /** The caller made sure that no sandbox and no snapshot uses it. */
  async remove(id: string): Promise<void> {
    const image = await this.get(id);
    await this.#shelf.directory.remove(image.id);
    if (image.layers === undefined) return;
    this.#layered?.forget(image.id);
    await this.collect();
  }

  /** Its own, unless that is taken here or kept for what Coppice makes itself. */
  async #freeName(name: string, digest: string): Promise<string> {
    checkImageName(name);
    const kept = name === 'host' || name.startsWith('debian:');
    if (!kept && this.#shelf.making(name) === undefined && (await this.find(name)) === undefined) return name;
    const [base = name] = name.split(':');
    return `${base.slice(0, 50)}-${digest.slice(-12)}`;
  }

  #joinOrBuild(name: string, options: BuildOptions, fill: FillRootfs): Promise<Image> {
    return this.#shelf.making(name) ?? this.#build(name, options, fill);
  }

  #build(name: string, options: BuildOptions, fill: FillRootfs): Promise<Image> {
    return this.#shelf.exclusively(name, () => this.#buildOnce(name, options, fill));
  }

  /**
   * Makes what Coppice makes itself anew, beside the one that there is: that one gets another name, and what stands on it stays on
   * it. Where nothing changed, it stays as it is.
   */
  async refresh(name: string, options: BuildOptions = {}): Promise<Image> {
    const suite = debianSuite(name);
    if (name !== 'host' && suite === undefined)
      throw new CoppiceError('invalid_argument', `${name} is not an image that Coppice makes itself`, {
        hint: `Only host and debian:<suite> are. For others: coppice images pull ${name}`,
      });
    const limits = { ...options, ...this.#limits };
    return this.#shelf.exclusively(name, () =>
      this.#fill(name, options, (rootfs) =>
        suite === undefined ? fillHost(rootfs, options) : buildDebianRootfs(suite, rootfs, limits),
      ),
    );
  }

  async #buildOnce(name: string, options: BuildOptions, fill: FillRootfs): Promise<Image> {
    if ((await this.find(name)) !== undefined) throw nameTaken(name);
    return this.#fill(name, options, fill);
  }

  async #fill(name: string, options: BuildOptions, fill: FillRootfs): Promise<Image> {
    const { directory } = this.#shelf;
    const id = this.#shelf.newId();
    const building = await directory.makeBuilding(id);
    try {
      const rootfs = join(building, 'rootfs');
      await mkdir(rootfs, { mode: 0o755 });
      const { source, warnings } = await fill(rootfs);
      const content = source.kind !== 'host';
      options.onProgress?.({ phase: 'computing the digest', done: 0, total: null, unit: 'steps' });
      const manifest = await readManifest(`${rootfs}/`, { content, signal: options.signal });
      const before = await this.find(name);
      if (before?.digest === manifest.digest) {
        await rm(building, { recursive: true, force: true });
        return before;
      }
      const image: Image = { id, name, source, ...manifest, createdAt: this.#shelf.now(), warnings };
      await this.#shelf.giveUpName(before);
      await directory.publish(building, image);
      return image;
    } catch (error) {
      await rm(building, { recursive: true, force: true });
      throw buildFailure(name, error);
    }
  }
}

async function fillHost(rootfs: string, options: BuildOptions): Promise<BuiltRootfs> {
  await buildHostRootfs(rootfs, options);
  return { source: { kind: 'host' }, warnings: [] };
}

const isId = (text: string): boolean => /^img_[0-9a-hjkmnp-tv-z]{26}$/.test(text);

/** Whoever mistyped the name of an image that is here must be able to tell. */
const notHere = (name: string, error: CoppiceError): CoppiceError =>
  new CoppiceError(error.code, `there is no image ${name} here, and it cannot be pulled: ${error.message}`, {
    hint: `${error.hint} What is here: \`coppice images\``,
    cause: error,
    ...(error.details === undefined ? {} : { details: error.details }),
  });
