import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { pack } from 'tar-stream';
import type { BlobStore } from '../oci/blob-store.ts';
import { describeDocument, mediaTypes, toJson } from '../oci/image-manifest.ts';
import type { ImageDocuments } from '../oci/pull-image.ts';

/**
 * An image as one tar: the OCI layout, and beside it what `docker load` looks for. The same image always gives the same bytes.
 */
export async function* writeArchive(
  { manifest, manifestBytes, configBytes }: Omit<ImageDocuments, 'digest' | 'config'>,
  name: string | undefined,
  blobs: BlobStore,
): AsyncGenerator<Buffer, void, undefined> {
  const packing = pack();
  const entry = (path: string, size: number) =>
    packing.entry({ name: path, size, mode: 0o644, mtime: new Date(0) });
  const put = (path: string, bytes: Buffer): Promise<void> =>
    pipeline([bytes], entry(path, bytes.length) as unknown as NodeJS.WritableStream);
  const writing = (async () => {
    const described = describeDocument(manifest.mediaType ?? mediaTypes.ociManifest, manifestBytes);
    const annotations = { 'io.containerd.image.name': name, 'org.opencontainers.image.ref.name': name };
    const index = {
      schemaVersion: 2,
      mediaType: mediaTypes.ociIndex,
      manifests: [name === undefined ? described : { ...described, annotations }],
    };
    const docker = [
      {
        Config: pathOf(manifest.config.digest),
        RepoTags: name === undefined ? [] : [name],
        Layers: manifest.layers.map(({ digest }) => pathOf(digest)),
      },
    ];
    await put('oci-layout', toJson({ imageLayoutVersion: '1.0.0' }));
    await put('index.json', toJson(index));
    await put('manifest.json', toJson(docker));
    await put(pathOf(described.digest), manifestBytes);
    await put(pathOf(manifest.config.digest), configBytes);
    const sizes = new Map(manifest.layers.map(({ digest, size }) => [digest, size]));
    for (const [digest, size] of sizes)
      await pipeline(blobs.read(digest), entry(pathOf(digest), size) as unknown as NodeJS.WritableStream);
    packing.finalize();
  })();
  writing.catch((error: Error) => packing.destroy(error));
  try {
    yield* packing as unknown as Readable as AsyncIterable<Buffer>;
    await writing;
  } finally {
    packing.destroy();
  }
}

const pathOf = (digest: string): string => `blobs/${digest.replace(':', '/')}`;
