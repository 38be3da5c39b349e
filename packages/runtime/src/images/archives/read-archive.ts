import { CoppiceError, formatImageReference, parseImageReference } from '@coppice/protocol';
import { z } from 'zod';
import { packingOf } from '../layers/unpack-stream.ts';
import type { BlobStore } from '../oci/blob-store.ts';
import {
  type Descriptor,
  describeDocument,
  type ImageManifest,
  mediaTypes,
  parseImageConfig,
  parseIndex,
  parseManifest,
  toJson,
} from '../oci/image-manifest.ts';
import { choosePlatform, type Platform } from '../oci/platform.ts';
import type { ImageDocuments } from '../oci/pull-image.ts';
import type { ArchiveFiles } from './archive-files.ts';

/** One of the images of an archive. */
export interface ArchivedImage {
  /** As they are written in full names; often none, or one. */
  readonly names: readonly string[];
  open(): Promise<ImageDocuments>;
}

export interface ReadArchive {
  readonly format: 'docker' | 'oci';
  readonly images: readonly ArchivedImage[];
}

const dockerSchema = z
  .array(
    z.object({
      Config: z.string(),
      RepoTags: z.array(z.string()).nullish(),
      Layers: z.array(z.string()).max(1000),
    }),
  )
  .max(1000);

const nameKeys = ['io.containerd.image.name', 'org.opencontainers.image.ref.name'];

/** What `docker save` wrote, or any tool that writes the OCI layout. New versions of docker write both in one; then the latter counts. */
export async function readArchive(
  files: ArchiveFiles,
  blobs: BlobStore,
  platform: Platform,
): Promise<ReadArchive> {
  const index = await files.document('index.json');
  if (index !== null && files.find('oci-layout') !== undefined)
    return { format: 'oci', images: ociImages(index, files, platform) };
  const manifest = await files.document('manifest.json');
  if (manifest !== null) return { format: 'docker', images: dockerImages(manifest, files, blobs) };
  throw new CoppiceError(
    'invalid_argument',
    'the archive holds no image: neither manifest.json nor index.json',
    {
      hint: 'Nothing of it was kept. Make it with `docker save` or `skopeo copy … oci-archive:FILE`.',
    },
  );
}

function ociImages(bytes: Buffer, files: ArchiveFiles, platform: Platform): ArchivedImage[] {
  const { manifests } = parseIndex(bytes);
  const named = manifests.map((descriptor) => ({ descriptor, names: namesOf(descriptor.annotations ?? {}) }));
  const isOneForAll = manifests.length > 1 && named.every(({ names }) => names.length === 0);
  const fitting = isOneForAll
    ? [{ descriptor: choosePlatform({ schemaVersion: 2, manifests }, platform, 'the image'), names: [] }]
    : named;
  return fitting.map(({ descriptor, names }) => ({
    names,
    open: () => openOci(descriptor, files, platform),
  }));
}

async function openOci(
  descriptor: Descriptor,
  files: ArchiveFiles,
  platform: Platform,
): Promise<ImageDocuments> {
  const read = async (blob: Descriptor): Promise<Buffer> => {
    checkBlob(blob, files);
    return (await files.document(blobPath(blob.digest)))!;
  };
  const first = await read(descriptor);
  const document = parseManifest(first, descriptor.mediaType);
  let manifest: ImageManifest;
  let manifestBytes = first;
  if ('manifest' in document) manifest = document.manifest;
  else {
    const chosen = choosePlatform(document.index, platform, 'the image');
    manifestBytes = await read(chosen);
    const inner = parseManifest(manifestBytes, chosen.mediaType);
    if (!('manifest' in inner))
      throw new CoppiceError('unsupported', 'the archive holds a list of lists of platforms');
    manifest = inner.manifest;
  }
  for (const layer of manifest.layers) checkBlob(layer, files);
  const configBytes = await read(manifest.config);
  const config = parseImageConfig(configBytes, manifest);
  return { digest: descriptor.digest, manifest, manifestBytes, config, configBytes };
}

const blobPath = (digest: string): string => `blobs/${digest.replace(':', '/')}`;

/** A file of a layout is named after its digest; whether that is true was found out while it was taken in. */
function checkBlob({ digest, size }: Descriptor, files: ArchiveFiles): void {
  const file = files.need(blobPath(digest));
  if (file.digest === digest && file.size === size) return;
  throw new CoppiceError('unsafe', `the archive holds other bytes than those that ${digest} is of`, {
    hint: 'Nothing of it was kept. The archive is damaged, or somebody changed it.',
  });
}

function dockerImages(bytes: Buffer, files: ArchiveFiles, blobs: BlobStore): ArchivedImage[] {
  return parseDocker(bytes).map(({ Config, RepoTags, Layers }) => ({
    names: (RepoTags ?? []).map(familiar).filter((name) => name !== undefined),
    open: async () => {
      files.need(Config);
      const configBytes = (await files.document(Config))!;
      const layers: Descriptor[] = [];
      for (const path of Layers) {
        const { digest, size } = files.need(path);
        layers.push({ mediaType: await layerType(blobs, digest), digest, size });
      }
      const manifest: ImageManifest = {
        schemaVersion: 2,
        mediaType: mediaTypes.ociManifest,
        config: describeDocument(mediaTypes.ociConfig, configBytes),
        layers,
      };
      const manifestBytes = toJson(manifest);
      const config = parseImageConfig(configBytes, manifest);
      const { digest } = describeDocument(mediaTypes.ociManifest, manifestBytes);
      return { digest, manifest, manifestBytes, config, configBytes };
    },
  }));
}

function parseDocker(bytes: Buffer): z.infer<typeof dockerSchema> {
  try {
    return dockerSchema.parse(JSON.parse(bytes.toString('utf8')));
  } catch (cause) {
    throw new CoppiceError('invalid_argument', 'manifest.json of the archive is malformed', { cause });
  }
}

/** `docker save` packs layers not at all, other tools do. */
async function layerType(blobs: BlobStore, digest: string): Promise<string> {
  for await (const head of blobs.read(digest)) {
    const packing = packingOf(head);
    return packing === 'plain' ? mediaTypes.ociLayer : `${mediaTypes.ociLayer}+${packing}`;
  }
  throw new CoppiceError('invalid_argument', 'the archive has a layer of no bytes');
}

/** A name of a layout may be a tag alone, which names no image. */
function namesOf(annotations: Readonly<Record<string, string>>): string[] {
  for (const key of nameKeys) {
    const name = annotations[key];
    const known = name !== undefined && /[/:]/.test(name) ? familiar(name) : undefined;
    if (known !== undefined) return [known];
  }
  return [];
}

function familiar(name: string): string | undefined {
  try {
    return formatImageReference(parseImageReference(name));
  } catch {
    return undefined;
  }
}

/** The one that is meant: the only one, or the one of that name. */
export function chooseImage(
  { images }: ReadArchive,
  wanted: string | undefined,
): { image: ArchivedImage; name: string } {
  const names = images.flatMap((image) => image.names);
  const listed = names.length > 0 ? `It holds ${names.slice(0, 20).join(', ')}.` : 'It names none.';
  if (images.length === 0) throw new CoppiceError('invalid_argument', 'the archive holds no image');
  const [only] = images;
  if (wanted === undefined) {
    const [name] = only!.names;
    if (images.length === 1 && name !== undefined) return { image: only!, name };
    throw new CoppiceError(
      'invalid_argument',
      images.length === 1
        ? 'the image in the archive has no name'
        : `the archive holds ${images.length} images`,
      { hint: `Give a name: coppice images import ARCHIVE NAME. ${listed}` },
    );
  }
  const image =
    images.find((each) => each.names.includes(wanted)) ?? (images.length === 1 ? only : undefined);
  if (image !== undefined) return { image, name: wanted };
  throw new CoppiceError(
    'invalid_argument',
    `none of the ${images.length} images of the archive is named ${wanted}`,
    {
      hint: listed,
    },
  );
}
