import { CoppiceError, formatImageReference, type ImageReference } from '@coppice/protocol';
import type { LayerStore } from '../layers/layer-store.ts';
import type { BlobStore } from './blob-store.ts';
import { eachAtOnce } from './each-at-once.ts';
import {
  type Descriptor,
  type ImageConfigFile,
  type ImageManifest,
  parseImageConfig,
  parseManifest,
} from './image-manifest.ts';
import { choosePlatform, type Platform } from './platform.ts';
import type { Registries } from './registries.ts';
import type { FetchedManifest, RegistryClient } from './registry-client.ts';

export interface PullParts {
  readonly registries: Registries;
  readonly blobs: BlobStore;
  readonly layers: LayerStore;
  readonly platform: Platform;
}

export interface LayerProgress {
  /** Of the packed layer. */
  readonly digest: string;
  readonly state: 'waiting' | 'downloading' | 'unpacking' | 'done';
  readonly doneBytes: number;
  readonly totalBytes: number;
}

export interface PullOptions {
  readonly signal?: AbortSignal | undefined;
  readonly onLayer?: (progress: LayerProgress) => void;
}

/** An image by what it says of itself. */
export interface ImageDocuments {
  /** Of what the name stood for: the list of platforms where there is one. */
  readonly digest: string;
  readonly manifest: ImageManifest;
  readonly manifestBytes: Buffer;
  readonly config: ImageConfigFile;
  readonly configBytes: Buffer;
}

const mostConfigBytes = 8 << 20;
const downloadsAtOnce = 3;
/** A mount takes no more. */
const mostLayers = 127;

/** Gets an image from its registry or a mirror. Where it fails, what was checked of it stays for the next try and is seen nowhere. */
export async function pullImage(
  reference: ImageReference,
  parts: PullParts,
  options: PullOptions = {},
): Promise<ImageDocuments> {
  const name = formatImageReference(reference);
  const { found, client, host } = await findManifest(reference, parts.registries, options.signal);
  const { manifest, manifestBytes } = await chooseManifest(
    found,
    client,
    reference,
    parts.platform,
    options.signal,
  );
  checkLayerCount(manifest, name);
  const { repository } = reference;
  const configBytes = await client.fetchSmallBlob(
    repository,
    manifest.config,
    mostConfigBytes,
    options.signal,
  );
  const config = parseImageConfig(configBytes, manifest);
  checkPlatform(config, parts.platform, name);
  const rest = new AbortController();
  const signal = options.signal === undefined ? rest.signal : AbortSignal.any([options.signal, rest.signal]);
  const fetchLayer = async (blob: Descriptor, index: number): Promise<void> => {
    const report = (state: LayerProgress['state'], doneBytes: number): void =>
      options.onLayer?.({ digest: blob.digest, state, doneBytes, totalBytes: blob.size });
    report('waiting', 0);
    const source = {
      host,
      open: async (offset: number) => {
        const opened = await client.openBlob(repository, blob, offset, signal);
        return { bytes: opened.body.body as AsyncIterable<Buffer>, offset: opened.offset };
      },
    };
    await parts.blobs.fetch(blob, source, { signal, onBytes: (done) => report('downloading', done) });
    report('unpacking', blob.size);
    await parts.layers.ensure(config.rootfs.diff_ids[index]!, () => parts.blobs.read(blob.digest), signal);
    report('done', blob.size);
  };
  await eachAtOnce(manifest.layers, downloadsAtOnce, async (blob, index) => {
    try {
      await fetchLayer(blob, index);
    } catch (error) {
      // The others are of no use without this one.
      rest.abort(error);
      throw error;
    }
  });
  return { digest: found.digest, manifest, manifestBytes, config, configBytes };
}

export function checkLayerCount({ layers }: Pick<ImageManifest, 'layers'>, name: string): void {
  if (layers.length <= mostLayers) return;
  throw new CoppiceError(
    'unsupported',
    `${name} has ${layers.length} layers; at most ${mostLayers} can be mounted at once`,
    { hint: 'Build it again with fewer instructions, or squash it.' },
  );
}

/** From the first that has it. What the registry itself says is the last word. */
async function findManifest(
  reference: ImageReference,
  registries: Registries,
  signal: AbortSignal | undefined,
): Promise<{ found: FetchedManifest; client: RegistryClient; host: string }> {
  const readers = registries.readers(reference.registry);
  for (const [index, { host, client }] of readers.entries()) {
    try {
      return { found: await client.fetchManifest(reference, signal), client, host };
    } catch (error) {
      const mayGoOn =
        error instanceof CoppiceError &&
        ['not_found', 'unavailable', 'forbidden', 'rate_limited'].includes(error.code);
      if (!mayGoOn || index === readers.length - 1) throw error;
    }
  }
  throw new CoppiceError('internal', 'no registry was asked');
}

async function chooseManifest(
  found: FetchedManifest,
  client: RegistryClient,
  reference: ImageReference,
  platform: Platform,
  signal: AbortSignal | undefined,
): Promise<{ manifest: ImageManifest; manifestBytes: Buffer }> {
  const document = parseManifest(found.bytes, found.contentType);
  if ('manifest' in document) return { manifest: document.manifest, manifestBytes: found.bytes };
  const { digest } = choosePlatform(document.index, platform, formatImageReference(reference));
  const chosen = await client.fetchManifest({ repository: reference.repository, digest }, signal);
  const inner = parseManifest(chosen.bytes, chosen.contentType);
  if ('manifest' in inner) return { manifest: inner.manifest, manifestBytes: chosen.bytes };
  throw new CoppiceError('unsupported', `${formatImageReference(reference)} is a list of lists of platforms`);
}

/** Refuses an image for another kind of machine. */
export function checkPlatform({ os, architecture }: ImageConfigFile, platform: Platform, name: string): void {
  if ((os ?? 'linux') === 'linux' && (architecture ?? platform.architecture) === platform.architecture)
    return;
  throw new CoppiceError(
    'unsupported',
    `${name} is made for ${os}/${architecture}, and this machine is linux/${platform.architecture}`,
  );
}
