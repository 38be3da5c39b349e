import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { CoppiceError } from '@coppice/protocol';
import { buildDebianRootfs, debianSuite } from './debian-rootfs.ts';
import { copyDirectoryRootfs } from './directory-rootfs.ts';
import { type ExtractOptions, extractRootfs } from './extract-rootfs.ts';
import { buildHostRootfs } from './host-rootfs.ts';
import type { BuildOptions, BuiltRootfs, Image } from './image.ts';
import { ImageDirectory } from './image-directory.ts';
import { checkImageName, checkImportName } from './image-name.ts';
import { readManifest } from './manifest.ts';

export interface ImageStoreOptions {
  readonly directory: string;
  readonly newId: () => string;
  readonly now: () => Date;
  /** What the files of one imported image may add up to. */
  readonly maxBytes?: number;
  readonly maxEntries?: number;
}

const defaultMaxBytes = 64 * 2 ** 30;
const defaultMaxEntries = 4_000_000;

type FillRootfs = (rootfs: string) => Promise<BuiltRootfs>;

/** The images of a home. One process owns them; within it any number of builds may run at once. */
export class ImageStore {
  readonly #directory: ImageDirectory;
  readonly #newId: () => string;
  readonly #now: () => Date;
  readonly #limits: Pick<ExtractOptions, 'maxBytes' | 'maxEntries'>;
  /** Names that are being built: whoever asks for one meanwhile waits for the same build. */
  readonly #building = new Map<string, Promise<Image>>();

  private constructor(directory: ImageDirectory, options: ImageStoreOptions) {
    this.#directory = directory;
    this.#newId = options.newId;
    this.#now = options.now;
    this.#limits = {
      maxBytes: options.maxBytes ?? defaultMaxBytes,
      maxEntries: options.maxEntries ?? defaultMaxEntries,
    };
  }

  /** Removes what earlier processes left half made. */
  static async open(options: ImageStoreOptions): Promise<ImageStore> {
    const directory = new ImageDirectory(options.directory);
    await directory.sweep();
    return new ImageStore(directory, options);
  }

  /** Where the root filesystem of an image is; never to be written to. */
  rootfs(id: string): string {
    return this.#directory.rootfs(id);
  }

  /** In the order in which they were made. */
  list(): Promise<Image[]> {
    return this.#directory.list();
  }

  async find(nameOrId: string): Promise<Image | undefined> {
    const images = await this.list();
    return images.find((image) => image.id === nameOrId || image.name === nameOrId);
  }

  async get(nameOrId: string): Promise<Image> {
    const image = await this.find(nameOrId);
    if (image !== undefined) return image;
    throw new CoppiceError('not_found', `there is no image ${JSON.stringify(nameOrId.slice(0, 80))}`, {
      hint: 'See `coppice images`; import one with `coppice images import`, or use `host` or `debian:<suite>`.',
    });
  }

  /** Like get, but makes the images that Coppice knows how to make itself when they are first asked for. */
  async ensure(nameOrId: string, options: BuildOptions = {}): Promise<Image> {
    const existing = await this.find(nameOrId);
    if (existing !== undefined) return existing;
    if (nameOrId === 'host') return this.#joinOrBuild('host', options, (rootfs) => fillHost(rootfs, options));
    const suite = debianSuite(nameOrId);
    if (suite !== undefined) {
      const limits = { ...options, ...this.#limits };
      return this.#joinOrBuild(nameOrId, options, (rootfs) => buildDebianRootfs(suite, rootfs, limits));
    }
    return this.get(nameOrId);
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
    if (this.#building.has(name)) return Promise.reject(nameTaken(name));
    const build = this.#buildOnce(name, options, fill).finally(() => this.#building.delete(name));
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
