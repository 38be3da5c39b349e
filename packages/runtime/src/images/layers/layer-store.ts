import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import type { LayerProgram, UnpackedLayer, UnpackLimits } from './layer-program.ts';
import { unpackStream } from './unpack-stream.ts';

/** A layer that is unpacked and never changes again. */
export interface Layer extends UnpackedLayer {
  /** The digest of its tar. */
  readonly diffId: string;
}

export interface LayerStoreOptions {
  readonly directory: string;
  readonly program: LayerProgram;
  readonly limits: UnpackLimits;
}

const buildingPrefix = '.building-';
const removingPrefix = '.removing-';
const alphabet = 'abcdefghijklmnopqrstuvwxyz234567';

const nameChars = 20;

/**
 * Short: a mount of all layers of an image has one page for its options. Whoever wanted to could make two tars that share a
 * name; the record in it has the whole digest, and the second one is refused.
 */
export function layerName(diffId: string): string {
  const bytes = Buffer.from(diffId.slice('sha256:'.length), 'hex');
  let value = BigInt(`0x${bytes.toString('hex')}`);
  let name = '';
  for (let i = 0; i < nameChars; i += 1) {
    name = alphabet[Number(value & 31n)] + name;
    value >>= 5n;
  }
  return name;
}

/**
 * The layers of all images, each unpacked once under the digest of its tar. `<name>/fs` is what an overlay takes as a lower.
 * A layer appears by one rename when it is whole and was checked.
 */
export class LayerStore {
  readonly #options: LayerStoreOptions;
  readonly #known = new Map<string, Layer>();
  readonly #unpacking = new Map<string, Promise<Layer>>();

  private constructor(options: LayerStoreOptions) {
    this.#options = options;
  }

  /** Deletes what processes that are gone left half made or half removed. */
  static async open(options: LayerStoreOptions): Promise<LayerStore> {
    const store = new LayerStore(options);
    await mkdir(options.directory, { recursive: true, mode: 0o700 });
    for (const name of await readdir(options.directory)) {
      const path = join(options.directory, name);
      if (name.startsWith(buildingPrefix) || name.startsWith(removingPrefix))
        await rm(path, { recursive: true, force: true });
      else if (/^[a-z2-7]{20}$/.test(name)) await store.#load(name);
    }
    return store;
  }

  /** What holds all layers, and what is mounted as one. */
  get directory(): string {
    return this.#options.directory;
  }

  get(diffId: string): Layer | undefined {
    return this.#known.get(diffId);
  }

  path(diffId: string): string {
    return join(this.directory, layerName(diffId), 'fs');
  }

  /** Unpacks it unless it is there. Two that want the same wait for one; what is refused leaves nothing. */
  async ensure(diffId: string, packed: () => AsyncIterable<Buffer>, signal?: AbortSignal): Promise<Layer> {
    const known = this.#known.get(diffId);
    if (known !== undefined) return known;
    const running = this.#unpacking.get(diffId);
    if (running !== undefined) {
      await running.catch(() => {});
      return this.ensure(diffId, packed, signal);
    }
    const unpacking = this.#unpack(packed(), diffId, signal).finally(() => this.#unpacking.delete(diffId));
    this.#unpacking.set(diffId, unpacking);
    return unpacking;
  }

  usedBytes(): number {
    return [...this.#known.values()].reduce((total, { bytes }) => total + bytes, 0);
  }

  /** Deletes those that no image has. */
  async keepOnly(diffIds: ReadonlySet<string>): Promise<void> {
    for (const diffId of [...this.#known.keys()]) {
      if (diffIds.has(diffId)) continue;
      this.#known.delete(diffId);
      const removing = join(this.directory, `${removingPrefix}${process.pid}-${layerName(diffId)}`);
      await rename(join(this.directory, layerName(diffId)), removing);
      await rm(removing, { recursive: true, force: true });
    }
  }

  async #unpack(
    packed: AsyncIterable<Buffer>,
    diffId: string,
    signal: AbortSignal | undefined,
  ): Promise<Layer> {
    const { program, limits } = this.#options;
    const building = join(this.directory, `${buildingPrefix}${process.pid}-${layerName(diffId)}`);
    // Closed to other accounts of the machine: a program in it that is set-uid root must not be within their reach.
    await mkdir(building, { mode: 0o700 });
    await mkdir(join(building, 'fs'), { mode: 0o755 });
    const tar = new CheckedTar(unpackStream(packed), limits.maxBytes);
    try {
      const unpacked = await program.unpack(tar.bytes(), join(building, 'fs'), limits, signal);
      if (tar.digest() !== diffId)
        throw new CoppiceError('unsafe', `a layer holds other files than those that ${diffId} is of`, {
          hint: 'Nothing of it was kept. The image is broken, or somebody changed it.',
        });
      const layer: Layer = { diffId, ...unpacked };
      await writeFile(join(building, 'layer.json'), `${JSON.stringify(layer)}\n`, { flush: true });
      await rename(building, join(this.directory, layerName(diffId)));
      this.#known.set(diffId, layer);
      return layer;
    } catch (error) {
      await rm(building, { recursive: true, force: true });
      throw error;
    }
  }

  async #load(name: string): Promise<void> {
    const file = join(this.directory, name, 'layer.json');
    try {
      const layer = JSON.parse(await readFile(file, 'utf8')) as Layer;
      if (layerName(layer.diffId) !== name) throw new Error('it is of another layer');
      this.#known.set(layer.diffId, layer);
    } catch (cause) {
      throw new CoppiceError('corrupt', `${file} does not describe a layer`, {
        hint: 'Move its directory away, then pull the images that had it again.',
        cause,
      });
    }
  }
}

/** Counts and digests a tar on its way. */
export class CheckedTar {
  readonly #source: AsyncIterable<Buffer>;
  readonly #maxBytes: number;
  readonly #hash = createHash('sha256');

  constructor(source: AsyncIterable<Buffer>, maxBytes: number) {
    this.#source = source;
    this.#maxBytes = maxBytes;
  }

  async *bytes(): AsyncGenerator<Buffer, void, undefined> {
    let length = 0;
    for await (const chunk of this.#source) {
      length += chunk.length;
      if (length > this.#maxBytes)
        throw new CoppiceError('too_large', `a layer holds more than ${this.#maxBytes} bytes`);
      this.#hash.update(chunk);
      yield chunk;
    }
  }

  digest(): string {
    return `sha256:${this.#hash.digest('hex')}`;
  }
}
