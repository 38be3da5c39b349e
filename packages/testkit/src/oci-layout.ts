import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { type Header, pack } from 'tar-stream';

const run = promisify(execFile);

export type LayerEntry = Partial<Header> & { name: string; text?: string | Buffer };

/** A layer as a tar, of entries that may be anything. */
export async function layerTar(...entries: readonly LayerEntry[]): Promise<Buffer> {
  const packing = pack();
  for (const { text, ...header } of entries) packing.entry(header, text ?? '');
  packing.finalize();
  return buffer(packing as unknown as Readable);
}

export interface LayoutImage {
  /** As tars, lowest first. */
  readonly layers: readonly Buffer[];
  /** Of the configuration: what processes get. */
  readonly config?: object;
  readonly packing?: 'gzip' | 'zstd' | 'plain';
  readonly architecture?: string;
  /** In place of the digests that the layers have. */
  readonly diffIds?: readonly string[];
}

export const sha256Of = (bytes: Buffer): string =>
  `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

const manifestType = 'application/vnd.oci.image.manifest.v1+json';
const machineArchitecture = process.arch === 'x64' ? 'amd64' : process.arch;

/** Images in the layout that every tool of images reads. Returns the digest of the manifest, or of the list where there are several. */
export async function writeOciLayout(
  directory: string,
  tag: string,
  ...images: readonly LayoutImage[]
): Promise<string> {
  const blobs = join(directory, 'blobs/sha256');
  await mkdir(blobs, { recursive: true });
  const put = async (
    mediaType: string,
    bytes: Buffer,
  ): Promise<{ mediaType: string; digest: string; size: number }> => {
    const digest = sha256Of(bytes);
    await writeFile(join(blobs, digest.slice('sha256:'.length)), bytes);
    return { mediaType, digest, size: bytes.length };
  };
  const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));
  const manifests = [];
  for (const image of images) {
    const { layers, config = {}, packing = 'gzip', architecture = machineArchitecture, diffIds } = image;
    const packed = [];
    for (const layer of layers) {
      const bytes =
        packing === 'gzip'
          ? gzipSync(layer, { level: 1 })
          : packing === 'zstd'
            ? zstdCompressSync(layer)
            : layer;
      const suffix = packing === 'plain' ? '' : `+${packing}`;
      packed.push(await put(`application/vnd.oci.image.layer.v1.tar${suffix}`, bytes));
    }
    const rootfs = { type: 'layers', diff_ids: diffIds ?? layers.map(sha256Of) };
    const document = {
      architecture,
      os: 'linux',
      config,
      rootfs,
      history: layers.map(() => ({ created_by: 'test' })),
    };
    const manifest = {
      schemaVersion: 2,
      mediaType: manifestType,
      config: await put('application/vnd.oci.image.config.v1+json', json(document)),
      layers: packed,
    };
    const described = await put(manifestType, json(manifest));
    manifests.push({ ...described, platform: { architecture, os: 'linux' } });
  }
  const indexType = 'application/vnd.oci.image.index.v1+json';
  const named =
    manifests.length === 1
      ? manifests[0]!
      : await put(indexType, json({ schemaVersion: 2, mediaType: indexType, manifests }));
  const annotations = { 'org.opencontainers.image.ref.name': tag };
  await writeFile(join(directory, 'oci-layout'), json({ imageLayoutVersion: '1.0.0' }));
  await writeFile(
    join(directory, 'index.json'),
    json({ schemaVersion: 2, manifests: [{ ...named, annotations }] }),
  );
  return named.digest;
}

/** Copies an image with skopeo, as `oci:DIR:TAG` or `docker://HOST/NAME:TAG`, registries on the loopback without TLS. */
export async function skopeoCopy(from: string, to: string, ...options: readonly string[]): Promise<void> {
  const plain = ['--src-tls-verify=false', '--dest-tls-verify=false'];
  await run('skopeo', [
    'copy',
    '--quiet',
    '--insecure-policy',
    '--all',
    '--preserve-digests',
    ...plain,
    ...options,
    from,
    to,
  ]);
}
