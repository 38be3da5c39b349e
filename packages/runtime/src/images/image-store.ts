import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { CoppiceError, formatImageReference, parseImageReference } from '@coppice/protocol';
import type { ImageRoot } from '../driver.ts';
import { buildDebianRootfs, debianSuite } from './debian-rootfs.ts';
import { copyDirectoryRootfs } from './directory-rootfs.ts';
import { type ExtractOptions, extractRootfs } from './extract-rootfs.ts';
import { buildHostRootfs } from './host-rootfs.ts';
import type { BuildOptions, BuiltRootfs, Image, ImageSource } from './image.ts';
import { ImageDirectory } from './image-directory.ts';
import { checkImageName, checkImportName } from './image-name.ts';
import type { LayeredContent, LayeredImages, PullProgress } from './layered-images.ts';
import { readManifest } from './manifest.ts';
import type { ImageSettings } from './oci/image-settings.ts';

export interface ImageStoreOptions {
  readonly directory: string;
  readonly newId: () => string;
  readonly now: () => Date;
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

/** The images of a home. One process owns them; within it any number of builds may run at once. */
export class ImageStore {
  readonly #directory: ImageDirectory;
  readonly #newId: () => string;
  readonly #now: () => Date;
  readonly #layered: LayeredImages | undefined;
  readonly #pullMissing: boolean;
  readonly #limits: Pick<ExtractOptions, 'maxBytes' | 'maxEntries'>;
  /** Names that are being built: whoever asks for one meanwhile waits for the same build. */
  readonly #building = new Map<string, Promise<Image>>();
  /** Those that are made of layers, by id: asked for with every start and every command. */
  readonly #ofLayers = new Map<string, { root: ImageRoot; settings: ImageSettings }>();

  private constructor(directory: ImageDirectory, options: ImageStoreOptions) {
    this.#directory = directory;
    this.#newId = options.newId;
    this.#now = options.now;
    this.#layered = options.layered;
    this.#pullMissing = options.pullMissing ?? true;
    this.#limits = {
      maxBytes: options.maxBytes ?? defaultMaxBytes,
      maxEntries: options.maxEntries ?? defaultMaxEntries,
    };
  }

  /** Removes what earlier processes left half made. */
  static async open(options: ImageStoreOptions): Promise<ImageStore> {
    const directory = new ImageDirectory(options.directory);
    await directory.sweep();
    const store = new ImageStore(directory, options);
    // With a record that cannot be read nothing is deleted, as nobody knows what it stands on; whoever asks for it is told.
    const images = await store.list().catch(() => undefined);
    for (const image of images ?? []) store.#know(image);
    if (images !== undefined) await options.layered?.keepOnly(async () => images, { withBlobs: false });
    return store;
  }

  /** What a sandbox of the image stands on; never to be written to. */
  root(id: string): ImageRoot {
    return this.#ofLayers.get(id)?.root ?? { directory: join(this.#directory.path, id), layers: ['rootfs'] };
  }

  /** The same as directories, topmost first. */
  directories(id: string): string[] {
    const { directory, layers } = this.root(id);
    return layers.map((layer) => join(directory, layer));
  }

  /** What the image says about processes that run in it; undefined where it says nothing. */
  settings(id: string): ImageSettings | undefined {
    return this.#ofLayers.get(id)?.settings;
  }

  /** The one directory of an image that is not made of layers. */
  rootfs(id: string): string {
    return this.#directory.rootfs(id);
  }

  /** In the order in which they were made. */
  list(): Promise<Image[]> {
    return this.#directory.list();
  }

  /** By id or name; a name without a tag is also that of the tag `latest`. */
  async find(nameOrId: string): Promise<Image | undefined> {
    const images = await this.list();
    const known = (wanted: string | undefined): Image | undefined =>
      images.find((image) => image.id === wanted || image.name === wanted);
    return known(nameOrId) ?? known(familiarName(nameOrId));
  }

  async get(nameOrId: string): Promise<Image> {
    const image = await this.find(nameOrId);
    if (image !== undefined) return image;
    throw new CoppiceError('not_found', `there is no image ${JSON.stringify(nameOrId.slice(0, 80))}`, {
      hint: 'See `coppice images`; get one with `coppice images pull` or `import`, or use `host` or `debian:<suite>`.',
    });
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
    return this.pull(name, options).catch((error: unknown) => {
      throw error instanceof CoppiceError ? notHere(name, error) : error;
    });
  }

  /**
   * Gets an image from its registry. Where the name stands for another image there than here, that one comes in under the
   * name and the one that had it is from now on found by its digest: what stands on it stays on it.
   */
  pull(nameText: string, options: PullProgress = {}): Promise<Image> {
    const layered = this.#layered;
    if (layered === undefined)
      throw new CoppiceError('unsupported', 'this store takes no images from registries');
    const reference = parseImageReference(nameText);
    const name = formatImageReference(reference);
    const running = this.#building.get(name);
    if (running !== undefined) return running;
    return this.#exclusively(name, async () =>
      layered.working(async () => {
        try {
          const content = await layered.pull(reference, options);
          const source = { kind: 'registry', reference: name, digest: content.manifestDigest } as const;
          return await this.#takeLayered(name, source, content, layered);
        } catch (error) {
          // What was refused must not stay; what was cut off is gone on with the next time.
          if (isRefusal(error)) await this.collect();
          throw buildFailure(name, error);
        }
      }),
    );
  }

  async #takeLayered(
    name: string,
    source: ImageSource,
    content: LayeredContent,
    layered: LayeredImages,
  ): Promise<Image> {
    const { documents, manifestDigest: _, ...known } = content;
    const before = await this.find(name);
    if (before?.digest === content.digest && before.layers !== undefined) {
      const image = { ...before, source };
      await this.#directory.rewrite(image);
      return image;
    }
    const id = this.#newId();
    const image: Image = { id, name, source, ...known, createdAt: this.#now().toISOString() };
    const building = await this.#directory.makeBuilding(id);
    try {
      await writeFile(join(building, 'manifest.json'), documents.manifest);
      await writeFile(join(building, 'config.json'), documents.config);
      await layered.makeRoof(id, content);
      if (before !== undefined) await this.#directory.rewrite({ ...before, name: nameByDigest(before) });
      await this.#directory.publish(building, image);
    } catch (error) {
      await rm(building, { recursive: true, force: true });
      await layered.dropRoof(id);
      throw error;
    }
    this.#know(image);
    return image;
  }

  #know({ id, layers, settings }: Image): void {
    if (layers === undefined || settings === undefined || this.#layered === undefined) return;
    this.#ofLayers.set(id, { root: this.#layered.root(id, layers), settings });
  }

  /** Deletes layers that no image has, and downloads that were begun. */
  async collect(): Promise<void> {
    await this.#layered?.keepOnly(() => this.list(), { withBlobs: true });
  }

  /** Of all images together, each layer once. */
  async usedBytes(): Promise<number> {
    const plain = (await this.list()).filter(({ layers }) => layers === undefined);
    const own = plain.reduce((total, { sizeBytes }) => total + sizeBytes, 0);
    return own + ((await this.#layered?.usedBytes()) ?? 0);
  }

  /** Takes a root filesystem from a tar archive: plain, gzip or zstd. The stream is destroyed at the end. */
  async importArchive(name: string, stream: Readable, options: BuildOptions = {}): Promise<Image> {
    try {
      checkImportName(name);
      return await this.#build(name, options, async (rootfs) => {
        const limits = { ...options, ...this.#limits };
        const { format, warnings } = await extractRootfs(stream, rootfs, limits);
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
    await this.#directory.remove(image.id);
    this.#ofLayers.delete(image.id);
    if (image.layers !== undefined) await this.collect();
  }

  /** Its own, unless that is taken here or kept for what Coppice makes itself. */
  async #freeName(name: string, digest: string): Promise<string> {
    checkImageName(name);
    const kept = name === 'host' || name.startsWith('debian:');
    if (!kept && !this.#building.has(name) && (await this.find(name)) === undefined) return name;
    const [base = name] = name.split(':');
    return `${base.slice(0, 50)}-${digest.slice(-12)}`;
  }

  #joinOrBuild(name: string, options: BuildOptions, fill: FillRootfs): Promise<Image> {
    return this.#building.get(name) ?? this.#build(name, options, fill);
  }

  #build(name: string, options: BuildOptions, fill: FillRootfs): Promise<Image> {
    return this.#exclusively(name, () => this.#buildOnce(name, options, fill));
  }

  #exclusively(name: string, work: () => Promise<Image>): Promise<Image> {
    if (this.#building.has(name)) return Promise.reject(nameTaken(name));
    const build = work().finally(() => this.#building.delete(name));
    this.#building.set(name, build);
    return build;
  }

  async #buildOnce(name: string, options: BuildOptions, fill: FillRootfs): Promise<Image> {
    if ((await this.find(name)) !== undefined) throw nameTaken(name);
    const id = this.#newId();
    const building = await this.#directory.makeBuilding(id);
    try {
      const rootfs = join(building, 'rootfs');
      await mkdir(rootfs, { mode: 0o755 });
      const { source, warnings } = await fill(rootfs);
      const content = source.kind !== 'host';
      options.onProgress?.({ phase: 'computing the digest', done: 0, total: null, unit: 'steps' });
      const manifest = await readManifest(`${rootfs}/`, { content, signal: options.signal });
      const image: Image = { id, name, source, ...manifest, createdAt: this.#now().toISOString(), warnings };
      await this.#directory.publish(building, image);
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

/** As images of registries are named here; undefined for what cannot be one. */
function familiarName(text: string): string | undefined {
  try {
    return formatImageReference(parseImageReference(text));
  } catch {
    return undefined;
  }
}

/** For an image whose name goes to another one. */
function nameByDigest({ id, name, source }: Image): string {
  if (source.kind !== 'registry') return `${name.slice(0, 30).replace(/:.*$/, '')}-${id.slice(-12)}`;
  const { registry, repository } = parseImageReference(source.reference);
  return formatImageReference({ registry, repository, digest: source.digest });
}

const isRefusal = (error: unknown): boolean =>
  error instanceof CoppiceError &&
  ['unsafe', 'invalid_argument', 'too_large', 'unsupported'].includes(error.code);

const nameTaken = (name: string): CoppiceError =>
  new CoppiceError('name_taken', `there is already an image named ${name}, or it is being made`);

function buildFailure(name: string, error: unknown): unknown {
  const { code, name: kind } = error as NodeJS.ErrnoException;
  if (kind === 'AbortError')
    return new CoppiceError('cancelled', `making the image ${name} was cancelled`, { cause: error });
  const full =
    code === 'ENOSPC' || code === 'EDQUOT' || (error as Error).message.includes('No space left on device');
  if (!full) return error;
  return new CoppiceError('no_space', `there is no space left to make the image ${name}`, { cause: error });
}
