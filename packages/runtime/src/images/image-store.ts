import { mkdir, rm, writeFile } from 'node:fs/promises';
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
import type { BuildOptions, BuiltRootfs, Image, ImageSource } from './image.ts';
import { ImageDirectory } from './image-directory.ts';
import { checkImageName, checkImportName, checkLayeredName } from './image-name.ts';
import type { LayeredContent, LayeredImages, PullProgress } from './layered-images.ts';
import { readManifest } from './manifest.ts';
import { type Addition, type ConfigSection, composeImage } from './oci/compose-image.ts';
import type { ImageSettings } from './oci/image-settings.ts';
import { machinePlatform } from './oci/platform.ts';
import type { ImageDocuments } from './oci/pull-image.ts';
import type { Pushed, PushOptions } from './oci/push-image.ts';

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

export interface ComposeInput {
  readonly name: string;
  readonly baseId: string;
  readonly upperDir?: string;
  readonly createdAt: string;
  readonly source: Extract<ImageSource, { kind: 'commit' | 'build' }>;
  readonly history: Addition['history'];
  /** In place of what the base says. */
  readonly config?: ConfigSection;
}

const scratchName = 'scratch:latest';

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
    const reference = parseImageReference(nameText);
    const name = formatImageReference(reference);
    const running = this.#building.get(name);
    if (running !== undefined) return running;
    return this.#exclusively(name, () =>
      this.#withLayers(
        name,
        async (layered) => {
          const content = await layered.pull(reference, options);
          const source = { kind: 'registry', reference: name, digest: content.manifestDigest } as const;
          return this.#takeLayered(name, source, content, layered);
        },
        isNoRefusal,
      ),
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
      if (isImage && this.#layered !== undefined) return await this.#importLayered(name, whole, options);
      if (name === undefined)
        throw new CoppiceError('invalid_argument', 'an archive of a root filesystem needs a name', {
          hint: 'Give one: coppice images import ARCHIVE NAME',
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

  async #importLayered(
    wanted: string | undefined,
    tar: AsyncIterable<Buffer>,
    options: PullProgress,
  ): Promise<Image> {
    const asked = wanted === undefined ? undefined : checkLayeredName(wanted);
    return this.#withLayers(asked ?? 'of the archive', async (layered) => {
      const { name, format, content } = await layered.takeArchive(tar, asked, options);
      const source = { kind: 'archive', format } as const;
      const image = await this.#exclusively(name, () => this.#takeLayered(name, source, content, layered));
      // Of what was in the archive, not all is part of the image.
      await this.collect();
      return image;
    });
  }

  /**
   * Makes an image of another one and, where there is one, a directory of changes as the upper of an overlay has them. The base keeps
   * its layers as they are; one that has none becomes a layer itself. What a build made before is not packed again.
   */
  async compose(input: ComposeInput, options: PullProgress = {}): Promise<Image> {
    const name = checkLayeredName(input.name);
    const { source } = input;
    return this.#withLayers(name, async (layered) => {
      const same = source.kind === 'build' ? await this.#built(source.key) : undefined;
      const documents =
        same === undefined
          ? await this.#composed(input, layered, options)
          : await this.#directory.readDocuments(same.id);
      const content = await layered.takeDocuments(documents, name, options);
      return this.#exclusively(name, () => this.#takeLayered(name, source, content, layered));
    });
  }

  async #composed(
    { baseId, upperDir, createdAt, history, config }: ComposeInput,
    layered: LayeredImages,
    options: PullProgress,
  ): Promise<ImageDocuments> {
    const base = await this.documents(baseId, options);
    const layers = upperDir === undefined ? [] : [await layered.pack(upperDir, options.signal)];
    const addition = { createdAt, layers, history, ...(config === undefined ? {} : { config }) };
    return composeImage(base, addition, machinePlatform());
  }

  async #built(key: string): Promise<Image | undefined> {
    return (await this.list()).find(({ source }) => source.kind === 'build' && source.key === key);
  }

  /** The image that has no files: what `FROM scratch` stands on. */
  async scratch(): Promise<Image> {
    const known = await this.find(scratchName);
    if (known !== undefined) return known;
    const createdAt = new Date(0).toISOString();
    const documents = composeImage(undefined, { createdAt, layers: [], history: [] }, machinePlatform());
    return this.#withLayers(scratchName, async (layered) => {
      const content = await layered.takeDocuments(documents, scratchName, {});
      const source = { kind: 'build', key: 'scratch' } as const;
      return this.#exclusively(scratchName, () => this.#takeLayered(scratchName, source, content, layered));
    });
  }

  /** What an image says about processes, as it stands in its configuration; empty where it says nothing. */
  async config(id: string): Promise<ConfigSection> {
    const image = await this.get(id);
    if (image.layers === undefined) return {};
    const { configBytes } = await this.#directory.readDocuments(image.id);
    return (JSON.parse(configBytes.toString('utf8')) as { config?: ConfigSection }).config ?? {};
  }

  /** What an image says of itself, with all packed layers here; an image of one directory is packed when it is first asked for. */
  async documents(id: string, { signal }: BuildOptions = {}): Promise<ImageDocuments> {
    const layered = this.#needLayered();
    const image = await this.get(id);
    if (image.layers !== undefined) return this.#directory.readDocuments(image.id);
    const packed = image.packed ?? (await layered.pack(`${this.#directory.rootfs(image.id)}/`, signal));
    if (image.packed === undefined) await this.#directory.rewrite({ ...image, packed });
    const history = [{ created: image.createdAt, created_by: `coppice: the image ${image.name}` }];
    return composeImage(
      undefined,
      { createdAt: image.createdAt, layers: [packed], history },
      machinePlatform(),
    );
  }

  /** As one tar that other tools read, and `importArchive`. The caller makes sure that the image stays. */
  async *export(id: string): AsyncGenerator<Buffer, void, undefined> {
    const layered = this.#needLayered();
    const image = await this.get(id);
    const documents = await layered.working(() => this.documents(id));
    const name = familiarName(image.name);
    yield* layered.archive(documents, name?.includes('@') ? undefined : name);
  }

  /** Sends it to a registry, under its own name or another. The caller makes sure that the image stays. */
  async push(
    id: string,
    target: string | undefined,
    options: PushOptions = {},
  ): Promise<Pushed & { name: string }> {
    const layered = this.#needLayered();
    const image = await this.get(id);
    const reference = parseImageReference(target ?? image.name);
    if (reference.digest !== undefined)
      throw new CoppiceError('invalid_argument', 'an image is pushed under a tag, not under a digest', {
        hint: `Say where to: coppice images push ${image.id} ghcr.io/org/app:1.0`,
      });
    const documents = await layered.working(() => this.documents(id));
    const images = await this.list();
    const elsewhere = (digest: string): string | undefined => {
      for (const { source, blobs } of images) {
        if (source.kind !== 'registry' || blobs?.includes(digest) !== true) continue;
        const { registry, repository } = parseImageReference(source.reference);
        if (registry === reference.registry) return repository;
      }
      return undefined;
    };
    const pushed = await layered.push(reference, documents, elsewhere, options);
    return { name: formatImageReference(reference), ...pushed };
  }

  #needLayered(): LayeredImages {
    if (this.#layered !== undefined) return this.#layered;
    throw new CoppiceError('unsupported', 'this store has no images of layers');
  }

  /** What no image came of must not stay, unless the next try goes on from there. */
  async #withLayers(
    name: string,
    work: (layered: LayeredImages) => Promise<Image>,
    goesOn: (error: unknown) => boolean = () => false,
  ): Promise<Image> {
    const layered = this.#needLayered();
    return layered.working(async () => {
      try {
        return await work(layered);
      } catch (error) {
        if (!goesOn(error)) await this.collect();
        throw buildFailure(name, error);
      }
    });
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
    return this.#exclusively(name, () =>
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
    const id = this.#newId();
    const building = await this.#directory.makeBuilding(id);
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
      const image: Image = { id, name, source, ...manifest, createdAt: this.#now().toISOString(), warnings };
      if (before !== undefined) await this.#directory.rewrite({ ...before, name: nameByDigest(before) });
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
function nameByDigest({ id, name, source, layers, digest }: Image): string {
  if (layers === undefined) return `${name.slice(0, 30).replace(/:.*$/, '')}-${id.slice(-12)}`;
  const { registry, repository } = parseImageReference(source.kind === 'registry' ? source.reference : name);
  return formatImageReference({
    registry,
    repository,
    digest: source.kind === 'registry' ? source.digest : digest,
  });
}

/** A download that was cut is gone on with the next time; what was refused is not asked for again. */
const isNoRefusal = (error: unknown): boolean =>
  !(
    error instanceof CoppiceError &&
    ['unsafe', 'invalid_argument', 'too_large', 'unsupported'].includes(error.code)
  );

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
