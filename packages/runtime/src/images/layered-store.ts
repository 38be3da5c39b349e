import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CoppiceError, formatImageReference, parseImageReference } from '@coppice/protocol';
import type { ImageRoot } from '../driver.ts';
import type { BuildOptions, Image, ImageSource } from './image.ts';
import { checkLayeredName } from './image-name.ts';
import { buildFailure, familiarName, type ImageShelf } from './image-shelf.ts';
import type { LayeredContent, LayeredImages, PullProgress } from './layered-images.ts';
import { type Addition, type ConfigSection, composeImage } from './oci/compose-image.ts';
import type { Descriptor } from './oci/image-manifest.ts';
import type { ImageSettings } from './oci/image-settings.ts';
import { machinePlatform } from './oci/platform.ts';
import type { ImageDocuments } from './oci/pull-image.ts';
import type { Pushed, PushOptions } from './oci/push-image.ts';

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

/** What an image says of itself, as bytes. */
export type DocumentBytes = Pick<ImageDocuments, 'manifestBytes' | 'configBytes'>;

/** An image of another machine, with its packed layers that are not here. */
export interface ForeignImage {
  readonly documents: ImageDocuments;
  readonly lacking: readonly Descriptor[];
}

const scratchName = 'scratch:latest';

/** Images that are made of layers: how they come in, and how they go out. */
export class LayeredStore {
  readonly #shelf: ImageShelf;
  readonly #layers: LayeredImages;
  /** By id: asked for with every start and every command. */
  readonly #known = new Map<string, { root: ImageRoot; settings: ImageSettings }>();

  constructor(shelf: ImageShelf, layers: LayeredImages) {
    this.#shelf = shelf;
    this.#layers = layers;
  }

  root(id: string): ImageRoot | undefined {
    return this.#known.get(id)?.root;
  }

  settings(id: string): ImageSettings | undefined {
    return this.#known.get(id)?.settings;
  }

  know({ id, layers, settings }: Image): void {
    if (layers === undefined || settings === undefined) return;
    this.#known.set(id, { root: this.#layers.root(id, layers), settings });
  }

  forget(id: string): void {
    this.#known.delete(id);
  }

  /** Deletes layers that no image has, and with the packed ones downloads that were begun. */
  async collect({ withBlobs } = { withBlobs: true }): Promise<void> {
    await this.#layers.keepOnly(() => this.#shelf.list(), { withBlobs });
  }

  /** Of all layers together, each once, and of what they came packed in. */
  usedBytes(): Promise<number> {
    return this.#layers.usedBytes();
  }

  /**
   * Gets an image from its registry. Where the name stands for another image there than here, that one comes in under the
   * name and the one that had it is from now on found by its digest: what stands on it stays on it.
   */
  pull(nameText: string, options: PullProgress = {}): Promise<Image> {
    const reference = parseImageReference(nameText);
    const name = formatImageReference(reference);
    const running = this.#shelf.making(name);
    if (running !== undefined) return running;
    return this.#shelf.exclusively(name, () =>
      this.#working(
        name,
        async () => {
          const content = await this.#layers.pull(reference, options);
          const source = { kind: 'registry', reference: name, digest: content.manifestDigest } as const;
          return this.#take(name, source, content);
        },
        isNoRefusal,
      ),
    );
  }

  /** From a tar as `docker save` and OCI tools write it; without a name the one that it brings. */
  async importArchive(
    wanted: string | undefined,
    tar: AsyncIterable<Buffer>,
    options: PullProgress,
  ): Promise<Image> {
    const asked = wanted === undefined ? undefined : checkLayeredName(wanted);
    return this.#working(asked ?? 'of the archive', async () => {
      const { name, format, content } = await this.#layers.takeArchive(tar, asked, options);
      const image = await this.#takeAlone(name, { kind: 'archive', format }, content);
      // Of what was in the archive, not all is part of the image.
      await this.collect();
      return image;
    });
  }

  /** What documents from elsewhere describe, once they are found to be sound, and those of its packed layers that are not here. */
  async readForeign(bytes: DocumentBytes, name: string): Promise<ForeignImage> {
    const documents = this.#layers.readDocuments(bytes, name);
    const lacking: Descriptor[] = [];
    for (const layer of documents.manifest.layers)
      if (!(await this.#layers.hasPacked(layer))) lacking.push(layer);
    return { documents, lacking };
  }

  /**
   * Takes in an image that was one elsewhere. `bring` hands over its packed layers that are not here. It is named by its digest:
   * whoever wrote the file must not be able to choose what a name stands for here.
   */
  async importForeign(
    documents: ImageDocuments,
    from: string,
    bring: (add: (digest: string, packed: AsyncIterable<Buffer>) => Promise<void>) => Promise<void>,
    options: PullProgress = {},
  ): Promise<Image> {
    const { registry, repository } = parseImageReference(from);
    const name = formatImageReference({ registry, repository, digest: documents.manifest.config.digest });
    return this.#working(name, async () => {
      await bring((digest, packed) => this.#layers.addPacked(digest, packed, options.signal));
      const content = await this.#layers.takeDocuments(documents, name, options);
      return this.#takeAlone(name, { kind: 'export' }, content);
    });
  }

  /** The bytes of a packed layer that is here. */
  packed(digest: string): AsyncIterable<Buffer> {
    return this.#layers.packed(digest);
  }

  /**
   * Makes an image of another one and, where there is one, a directory of changes as the upper of an overlay has them. The base keeps
   * its layers as they are; one that has none becomes a layer itself. What a build made before is not packed again.
   */
  async compose(input: ComposeInput, options: PullProgress = {}): Promise<Image> {
    const name = checkLayeredName(input.name);
    const { source } = input;
    return this.#working(name, async () => {
      const same = source.kind === 'build' ? await this.#built(source.key) : undefined;
      const documents =
        same === undefined
          ? await this.#composed(input, options)
          : await this.#shelf.directory.readDocuments(same.id);
      return this.#takeAlone(name, source, await this.#layers.takeDocuments(documents, name, options));
    });
  }

  async #composed(
    { baseId, upperDir, createdAt, history, config }: ComposeInput,
    options: PullProgress,
  ): Promise<ImageDocuments> {
    const base = await this.documents(baseId, options);
    const layers = upperDir === undefined ? [] : [await this.#layers.pack(upperDir, options.signal)];
    const addition = { createdAt, layers, history, ...(config === undefined ? {} : { config }) };
    return composeImage(base, addition, machinePlatform());
  }

  async #built(key: string): Promise<Image | undefined> {
    return (await this.#shelf.list()).find(({ source }) => source.kind === 'build' && source.key === key);
  }

  /** The image that has no files: what `FROM scratch` stands on. */
  async scratch(): Promise<Image> {
    const known = await this.#shelf.find(scratchName);
    if (known !== undefined) return known;
    const createdAt = new Date(0).toISOString();
    const documents = composeImage(undefined, { createdAt, layers: [], history: [] }, machinePlatform());
    return this.#working(scratchName, async () => {
      const content = await this.#layers.takeDocuments(documents, scratchName, {});
      return this.#takeAlone(scratchName, { kind: 'build', key: 'scratch' }, content);
    });
  }

  /** What an image says about processes, as it stands in its configuration; empty where it says nothing. */
  async config(id: string): Promise<ConfigSection> {
    const image = await this.#shelf.get(id);
    if (image.layers === undefined) return {};
    const { configBytes } = await this.#shelf.directory.readDocuments(image.id);
    return (JSON.parse(configBytes.toString('utf8')) as { config?: ConfigSection }).config ?? {};
  }

  /** What an image says of itself, with all packed layers here; an image of one directory is packed when it is first asked for. */
  async documents(id: string, { signal }: BuildOptions = {}): Promise<ImageDocuments> {
    const image = await this.#shelf.get(id);
    const { directory } = this.#shelf;
    if (image.layers !== undefined) return directory.readDocuments(image.id);
    const packed = image.packed ?? (await this.#layers.pack(`${directory.rootfs(image.id)}/`, signal));
    if (image.packed === undefined) await directory.rewrite({ ...image, packed });
    const history = [{ created: image.createdAt, created_by: `coppice: the image ${image.name}` }];
    return composeImage(
      undefined,
      { createdAt: image.createdAt, layers: [packed], history },
      machinePlatform(),
    );
  }

  /** As one tar that other tools read, and `importArchive`. The caller makes sure that the image stays. */
  async *export(id: string): AsyncGenerator<Buffer, void, undefined> {
    const image = await this.#shelf.get(id);
    const documents = await this.#layers.working(() => this.documents(id));
    const name = familiarName(image.name);
    yield* this.#layers.archive(documents, name?.includes('@') ? undefined : name);
  }

  /** Sends it to a registry, under its own name or another. The caller makes sure that the image stays. */
  async push(
    id: string,
    target: string | undefined,
    options: PushOptions = {},
  ): Promise<Pushed & { name: string }> {
    const image = await this.#shelf.get(id);
    const reference = parseImageReference(target ?? image.name);
    if (reference.digest !== undefined)
      throw new CoppiceError('invalid_argument', 'an image is pushed under a tag, not under a digest', {
        hint: `Say where to: coppice images push ${image.id} ghcr.io/org/app:1.0`,
      });
    const documents = await this.#layers.working(() => this.documents(id));
    const images = await this.#shelf.list();
    const elsewhere = (digest: string): string | undefined => {
      for (const { source, blobs } of images) {
        if (source.kind !== 'registry' || blobs?.includes(digest) !== true) continue;
        const { registry, repository } = parseImageReference(source.reference);
        if (registry === reference.registry) return repository;
      }
      return undefined;
    };
    const pushed = await this.#layers.push(reference, documents, elsewhere, options);
    return { name: formatImageReference(reference), ...pushed };
  }

  #takeAlone(name: string, source: ImageSource, content: LayeredContent): Promise<Image> {
    return this.#shelf.exclusively(name, () => this.#take(name, source, content));
  }

  async #take(name: string, source: ImageSource, content: LayeredContent): Promise<Image> {
    const { directory } = this.#shelf;
    const { documents, manifestDigest: _, ...known } = content;
    const before = await this.#shelf.find(name);
    if (before?.digest === content.digest && before.layers !== undefined) {
      const image = { ...before, source };
      await directory.rewrite(image);
      return image;
    }
    const id = this.#shelf.newId();
    const image: Image = { id, name, source, ...known, createdAt: this.#shelf.now() };
    const building = await directory.makeBuilding(id);
    try {
      await writeFile(join(building, 'manifest.json'), documents.manifest);
      await writeFile(join(building, 'config.json'), documents.config);
      await this.#layers.makeRoof(id, content);
      await this.#shelf.giveUpName(before);
      await directory.publish(building, image);
    } catch (error) {
      await rm(building, { recursive: true, force: true });
      await this.#layers.dropRoof(id);
      throw error;
    }
    this.know(image);
    return image;
  }

  /** What no image came of must not stay, unless the next try goes on from there. */
  #working(
    name: string,
    work: () => Promise<Image>,
    goesOn: (error: unknown) => boolean = () => false,
  ): Promise<Image> {
    return this.#layers.working(async () => {
      try {
        return await work();
      } catch (error) {
        if (!goesOn(error)) await this.collect();
        throw buildFailure(name, error);
      }
    });
  }
}

/** A download that was cut is gone on with the next time; what was refused is not asked for again. */
const isNoRefusal = (error: unknown): boolean =>
  !(
    error instanceof CoppiceError &&
    ['unsafe', 'invalid_argument', 'too_large', 'unsupported'].includes(error.code)
  );
