import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { CoppiceError, type Image, type makeImageSchema } from '@coppice/protocol';
import {
  type ComposeInput,
  type ConfigSection,
  type DocumentBytes,
  type ForeignImage,
  type ImageDocuments,
  type ImageProgress,
  type ImageRoot,
  type ImageSettings,
  type ImageSource,
  type ImageStore,
  type LayeredStore,
  type Image as StoredImage,
  signalNumber,
} from '@coppice/runtime';
import type { z } from 'zod';
import type { State } from '../db/state.ts';
import type { Journal } from '../journal/journal.ts';
import type { CallOptions, PullOptions, PushedImage, PushOptions } from '../services.ts';

const shownUsers = 10;

/** What of an image every sandbox needs to know. */
export interface ImageRef {
  readonly id: string;
  readonly name: string;
}

export class ImageService {
  readonly #store: ImageStore;
  readonly #state: State;
  readonly #journal: Journal;
  readonly #listeners: (() => void)[] = [];
  /** By id and by name: an image never changes, so only its removal ends an entry. */
  readonly #known = new Map<string, ImageRef>();
  /** Images that a creation stands on right now, before its record does. */
  readonly #claims = new Map<string, number>();
  /** Removed, or just being so: whoever had found one on the disk before is not given it any more. */
  readonly #gone = new Set<string>();

  constructor(store: ImageStore, state: State, journal: Journal) {
    this.#store = store;
    this.#state = state;
    this.#journal = journal;
  }

  /** Told of each image that comes or goes. */
  onChanged(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** What is known without looking, for the warm pool. */
  peek(ref: string): ImageRef | undefined {
    return this.#known.get(ref);
  }

  /** Makes an image known that exists already; makes none. */
  async remember(ref: string): Promise<void> {
    const image = await this.#store.find(ref);
    if (image !== undefined && !this.#gone.has(image.id)) this.#remember(image);
  }

  stored(imageId: string): Promise<StoredImage> {
    return this.#store.get(imageId);
  }

  async findByDigest(digest: string): Promise<ImageRef | undefined> {
    return (await this.#store.list()).find((image) => image.digest === digest);
  }

  /** An image of another machine, with what `fill` writes as its files. */
  async importTree(name: string, digest: string, fill: (rootfs: string) => Promise<void>): Promise<ImageRef> {
    return this.#made(await this.#store.importTree(name, digest, fill));
  }

  /** What an image of layers says of itself, and the bytes of its packed layers. */
  documents(imageId: string): Promise<ImageDocuments> {
    return this.#store.layered.documents(imageId);
  }

  packedLayer(digest: string): AsyncIterable<Buffer> {
    return this.#store.layered.packed(digest);
  }

  /** What is here that an exported file need not bring: images, and packed layers. */
  async contents(): Promise<{ images: string[]; layers: string[] }> {
    const images = await this.#store.list();
    return {
      images: [...new Set(images.map(({ digest }) => digest))],
      layers: [...new Set(images.flatMap(({ blobs }) => blobs ?? []))],
    };
  }

  /** What the documents of an image of another machine describe, and which of its packed layers are not here. */
  readForeign(bytes: DocumentBytes, name: string): Promise<ForeignImage> {
    return this.#store.layered.readForeign(bytes, name);
  }

  /** An image of another machine that is made of layers; `bring` hands over those that are not here. */
  async importLayers(
    documents: ImageDocuments,
    name: string,
    bring: Parameters<LayeredStore['importForeign']>[2],
    signal?: AbortSignal,
  ): Promise<ImageRef> {
    const options = signal === undefined ? {} : { signal };
    return this.#made(await this.#store.layered.importForeign(documents, name, bring, options));
  }

  /** What an import brought that did not come to its end. */
  async dropUnused(digest: string): Promise<void> {
    const image = await this.findByDigest(digest);
    if (image === undefined) return;
    await this.remove(image.id).catch((error: unknown) => {
      // Somebody uses it by now: then it stays, as one that was imported by itself would.
      if (!(error instanceof CoppiceError && error.code === 'in_use')) throw error;
    });
  }

  /** What sandboxes of the image stand on. */
  root(imageId: string): ImageRoot {
    return this.#store.root(imageId);
  }

  /** The same as directories, topmost first. */
  directories(imageId: string): string[] {
    return this.#store.directories(imageId);
  }

  /** The one directory of an image that is not made of layers. */
  rootfs(imageId: string): string {
    return this.#store.rootfs(imageId);
  }

  /** What the image says about processes that run in it. */
  settings(imageId: string): ImageSettings | undefined {
    return this.#store.settings(imageId);
  }

  /** The signal that asks the programs of an image to end, where it names one. */
  stopSignal(imageId: string): number | undefined {
    const name = this.settings(imageId)?.stopSignal;
    return name === undefined ? undefined : signalNumber(name);
  }

  /** Runs with an image that cannot be removed meanwhile; makes it first where Coppice knows how to. */
  async use<T>(ref: string, options: CallOptions, work: (image: ImageRef) => Promise<T>): Promise<T> {
    const image = this.#known.get(ref) ?? this.#remember(await this.#ensure(ref, options));
    return this.#claimed(image.id, () => work(image));
  }

  async #claimed<T>(imageId: string, work: () => Promise<T>): Promise<T> {
    const release = this.#claim(imageId);
    try {
      return await work();
    } finally {
      release();
    }
  }

  #claim(imageId: string): () => void {
    this.#claims.set(imageId, (this.#claims.get(imageId) ?? 0) + 1);
    return () => {
      const left = this.#claims.get(imageId)! - 1;
      if (left > 0) this.#claims.set(imageId, left);
      else this.#claims.delete(imageId);
    };
  }

  async list(project?: string): Promise<Image[]> {
    return (await this.#store.list()).map((image) => this.#view(image, project));
  }

  async get(ref: string, project?: string): Promise<Image> {
    return this.#view(await this.#store.get(ref), project);
  }

  async make(input: z.output<typeof makeImageSchema>, options: CallOptions = {}): Promise<Image> {
    const { source } = input;
    const build = this.#buildOptions(input.name ?? source, options);
    if (source === 'host') {
      if (input.name !== undefined && input.name !== 'host')
        throw new CoppiceError('invalid_argument', 'the image of this machine is always named host');
      return this.#made(await this.#store[input.refresh ? 'refresh' : 'ensure']('host', build));
    }
    if (source.startsWith('debian:')) {
      if (input.name !== undefined && input.name !== source)
        throw new CoppiceError('invalid_argument', `an image of ${source} is always named so`);
      return this.#made(await this.#store[input.refresh ? 'refresh' : 'ensure'](source, build));
    }
    if (input.refresh)
      throw new CoppiceError('invalid_argument', `${source} is not an image that Coppice makes itself`, {
        hint: 'Only host and debian:<suite> are made anew.',
      });
    const found = await stat(source).catch((cause: unknown) => {
      throw new CoppiceError('not_found', `${source} cannot be read on the daemon's machine`, { cause });
    });
    if (found.isDirectory()) {
      if (input.name === undefined)
        throw new CoppiceError('invalid_argument', `an image from ${source} needs a name`);
      return this.#made(await this.#store.importDirectory(input.name, source, build));
    }
    return this.#made(await this.#store.importArchive(input.name, createReadStream(source), build));
  }

  async importTar(
    name: string | undefined,
    tar: AsyncIterable<Uint8Array>,
    options: CallOptions = {},
  ): Promise<Image> {
    const build = this.#buildOptions(name ?? 'an archive', options);
    return this.#made(await this.#store.importArchive(name, Readable.from(tar), build));
  }

  /** Makes an image of another one and what was changed since. */
  async compose(input: ComposeInput, options: CallOptions = {}): Promise<Image> {
    return this.#claimed(input.baseId, async () =>
      this.#made(await this.#store.layered.compose(input, this.#buildOptions(input.name, options))),
    );
  }

  /** An image without any files. */
  async scratch(): Promise<Image> {
    return this.#made(await this.#store.layered.scratch());
  }

  /** What the image says about processes, with all that nobody here knows of. */
  config(imageId: string): Promise<ConfigSection> {
    return this.#store.layered.config(imageId);
  }

  async push(
    ref: string,
    to: string | undefined,
    { signal, onLayer }: PushOptions = {},
  ): Promise<PushedImage> {
    const image = await this.#store.get(ref);
    const pushed = await this.#claimed(image.id, () =>
      this.#store.layered.push(image.id, to, {
        ...(signal === undefined ? {} : { signal }),
        ...(onLayer === undefined ? {} : { onLayer }),
      }),
    );
    const { name, digest, uploadedBytes } = pushed;
    this.#journal.commit((emit) => emit('image.pushed', null, { image_id: image.id, name, digest }));
    return { name, digest, uploaded_bytes: uploadedBytes };
  }

  async export(ref: string): Promise<{ bytes: AsyncIterable<Uint8Array>; fileName: string }> {
    const image = await this.#store.get(ref);
    return { bytes: this.#archive(image.id), fileName: `${image.name.replace(/[^A-Za-z0-9.-]+/g, '-')}.tar` };
  }

  /** The image cannot be removed until the last byte is fetched, or whoever fetches them has gone away. */
  async *#archive(imageId: string): AsyncGenerator<Uint8Array, void, undefined> {
    const release = this.#claim(imageId);
    try {
      yield* this.#store.layered.export(imageId);
    } finally {
      release();
    }
  }

  /** Asks the registry also where there is an image of that name, which may be older than what it has. */
  async pull(name: string, options: PullOptions = {}): Promise<Image> {
    return this.#made(await this.#store.layered.pull(name, this.#buildOptions(name, options)));
  }

  /** What a creation would do first: nothing where there is an image of that name. */
  async ensure(name: string, options: PullOptions = {}): Promise<Image> {
    return this.#view(await this.#ensure(name, options));
  }

  /** Those that nothing stands on: `all`, or those whose name went to a newer one. */
  async prune(all: boolean): Promise<{ removed: { id: string; name: string }[]; freed_bytes: number }> {
    const removed: { id: string; name: string }[] = [];
    const before = await this.#store.usedBytes();
    for (const image of await this.#store.list()) {
      const superseded = isSuperseded(image);
      if (!(all || superseded) || this.#usersOf(image.id).length > 0 || this.#claims.has(image.id)) continue;
      await this.remove(image.id);
      removed.push({ id: image.id, name: image.name });
    }
    await this.#store.collect();
    return { removed, freed_bytes: Math.max(0, before - (await this.#store.usedBytes())) };
  }

  async remove(ref: string): Promise<void> {
    const image = await this.#store.get(ref);
    const users = this.#usersOf(image.id);
    if (users.length > 0) throw this.#inUse(image, users);
    if (this.#claims.has(image.id))
      throw new CoppiceError('in_use', `the image ${image.name} is being used right now`, {
        details: { used_by: [] },
        hint: 'A sandbox is being made of it, or it is being pushed or exported. Try again when that has ended.',
      });
    this.#known.delete(image.id);
    this.#known.delete(image.name);
    this.#gone.add(image.id);
    try {
      await this.#store.remove(image.id);
    } catch (error) {
      // Only where it is whole still; what is half removed is never looked at again.
      if ((await this.#store.find(image.id)) !== undefined) this.#gone.delete(image.id);
      throw error;
    }
    for (const listener of this.#listeners) listener();
    this.#journal.commit((emit) => emit('image.removed', null, { image_id: image.id, name: image.name }));
  }

  async #ensure(ref: string, options: PullOptions): Promise<StoredImage> {
    const existing = await this.#store.find(ref);
    if (existing !== undefined) return existing;
    // Others may wait for the same build: a caller that goes away must not end it.
    const { signal: _, ...shared } = options;
    const image = await this.#store.ensure(ref, this.#buildOptions(ref, shared));
    this.#made(image);
    return image;
  }

  #made(image: StoredImage): Image {
    this.#remember(image);
    for (const listener of this.#listeners) listener();
    this.#journal.commit((emit) => emit('image.made', null, { image_id: image.id, name: image.name }));
    return this.#view(image);
  }

  #remember({ id, name }: ImageRef): ImageRef {
    if (this.#gone.has(id))
      throw new CoppiceError('conflict', `the image ${name} is being removed`, { hint: 'Try again.' });
    const image = { id, name };
    // Its name may have been that of another one.
    this.#known.set(id, image).set(name, image);
    return image;
  }

  #buildOptions(
    name: string,
    options: PullOptions,
  ): Pick<PullOptions, 'signal' | 'onLayer'> & { onProgress: (at: ImageProgress) => void } {
    let phase: string | undefined;
    return {
      ...(options.signal === undefined ? {} : { signal: options.signal }),
      ...(options.onLayer === undefined ? {} : { onLayer: options.onLayer }),
      onProgress: (at) => {
        const fraction = at.total === null || at.total === 0 ? undefined : at.done / at.total;
        const message = at.detail === undefined ? at.phase : `${at.phase}: ${at.detail}`;
        options.progress?.({ message, ...(fraction === undefined ? {} : { fraction }) });
        if (at.phase === phase) return;
        phase = at.phase;
        this.#journal.commit((emit) => emit('image.progress', null, { name, phase: at.phase }));
      },
    };
  }

  /** Says by name what stands on it. */
  #inUse({ id, name }: StoredImage, users: readonly string[]): CoppiceError {
    const sandboxes = this.#state.sandboxes.all().filter(({ imageId }) => imageId === id);
    const snapshots = this.#state.snapshots.all().filter(({ imageId }) => imageId === id);
    const named = (kind: string, names: readonly string[]): string[] => {
      if (names.length === 0) return [];
      const shown = names.slice(0, shownUsers).join(', ');
      const rest = names.length > shownUsers ? ` and ${names.length - shownUsers} more` : '';
      return [`the ${kind}${names.length === 1 ? '' : 's'} ${shown}${rest}`];
    };
    const list = [
      ...named(
        'sandbox',
        sandboxes.map((sandbox) => sandbox.name),
      ),
      ...named(
        'snapshot',
        snapshots.map((snapshot) => `${snapshot.sandboxName}:${snapshot.name}`),
      ),
    ];
    return new CoppiceError('in_use', `the image ${name} is used by ${list.join(' and ')}`, {
      details: { used_by: users },
      hint: 'Remove them first with `coppice rm`, which takes sandboxes and snapshots.',
    });
  }

  #usersOf(imageId: string, project?: string): string[] {
    const sandboxes = this.#state.sandboxes.all().filter((sandbox) => sandbox.imageId === imageId);
    const snapshots = this.#state.snapshots.all().filter((snapshot) => snapshot.imageId === imageId);
    return [...sandboxes, ...snapshots]
      .filter((user) => project === undefined || user.project === project)
      .map((user) => user.id);
  }

  #view(image: StoredImage, project?: string): Image {
    return {
      id: image.id,
      name: image.name,
      source: sourceText(image.source),
      size_bytes: image.sizeBytes,
      digest: image.digest,
      created_at: image.createdAt,
      used_by: this.#usersOf(image.id, project),
      registry_digest: image.source.kind === 'registry' ? image.source.digest : null,
      layers: [...(image.layers ?? [])],
      settings: image.settings === undefined ? null : settingsView(image.settings),
      warnings: [...image.warnings],
    };
  }
}

/** Whether a newer image took its name. */
const isSuperseded = ({ name, source, layers }: StoredImage): boolean => {
  if (source.kind === 'host') return name !== 'host';
  if (source.kind === 'debian') return name !== `debian:${source.suite}`;
  const pinned = source.kind === 'registry' && source.reference.includes('@');
  return layers !== undefined && name.includes('@') && !pinned;
};

const settingsView = (settings: ImageSettings): NonNullable<Image['settings']> => ({
  env: { ...settings.env },
  entrypoint: [...settings.entrypoint],
  cmd: [...settings.cmd],
  user: settings.user ?? null,
  working_dir: settings.workingDir ?? null,
  exposed_ports: [...settings.exposedPorts],
  labels: { ...settings.labels },
  stop_signal: settings.stopSignal ?? null,
});

function sourceText(source: ImageSource): string {
  switch (source.kind) {
    case 'host':
    case 'export':
      return source.kind;
    case 'debian':
      return `debian:${source.suite}`;
    case 'registry':
      return source.reference;
    case 'build':
      return 'build';
    case 'commit':
      return `commit of ${source.of}`;
    case 'archive':
      return `archive (${source.format})`;
    case 'directory':
      return source.path;
  }
}
