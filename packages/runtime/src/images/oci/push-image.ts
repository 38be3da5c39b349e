import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError, type ImageReference } from '@coppice/protocol';
import { eachAtOnce } from './each-at-once.ts';
import { type Descriptor, describeDocument, mediaTypes } from './image-manifest.ts';
import type { ImageDocuments } from './pull-image.ts';
import type { RegistryClient } from './registry-client.ts';

export interface PushProgress {
  readonly digest: string;
  /** `present`: the registry has it. `mounted`: it has it in another repository and gave it to this one. */
  readonly state: 'waiting' | 'uploading' | 'present' | 'mounted' | 'done';
  readonly doneBytes: number;
  readonly totalBytes: number;
}

export interface PushParts {
  readonly client: RegistryClient;
  readonly read: (digest: string) => AsyncIterable<Buffer>;
  /** A repository of the same registry that should have the blob. */
  readonly elsewhere: (digest: string) => string | undefined;
}

export interface PushOptions {
  readonly signal?: AbortSignal | undefined;
  readonly onLayer?: (progress: PushProgress) => void;
}

export interface Pushed {
  /** Of the manifest: what pins the image. */
  readonly digest: string;
  readonly uploadedBytes: number;
}

const uploadsAtOnce = 3;
const mostAttempts = 3;
const pauseMs = 500;

/** Sends what the registry lacks, then the manifest: an image is in a registry whole or not at all. */
export async function pushImage(
  { repository, tag = 'latest' }: Pick<ImageReference, 'repository' | 'tag'>,
  { manifest, manifestBytes, configBytes }: Omit<ImageDocuments, 'digest' | 'config'>,
  { client, read, elsewhere }: PushParts,
  { signal, onLayer }: PushOptions = {},
): Promise<Pushed> {
  let uploadedBytes = 0;
  const send = async (blob: Descriptor, open: () => AsyncIterable<Buffer>): Promise<void> => {
    const report = (state: PushProgress['state'], doneBytes: number): void =>
      onLayer?.({ digest: blob.digest, state, doneBytes, totalBytes: blob.size });
    report('waiting', 0);
    const stream = (): Readable => {
      let done = 0;
      return Readable.from(
        (async function* () {
          for await (const chunk of open()) {
            yield chunk;
            done += chunk.length;
            report('uploading', done);
          }
        })(),
        { objectMode: false },
      );
    };
    const state = await tryAgain(signal, () =>
      client.pushBlob(repository, blob, stream, { from: elsewhere(blob.digest), signal }),
    );
    if (state === 'done') uploadedBytes += blob.size;
    report(state, blob.size);
  };
  const layers = new Map(manifest.layers.map((blob) => [blob.digest, blob]));
  await eachAtOnce([...layers.values()], uploadsAtOnce, (blob) => send(blob, () => read(blob.digest)));
  await send(manifest.config, () => Readable.from([configBytes]) as AsyncIterable<Buffer>);
  const type = manifest.mediaType ?? mediaTypes.ociManifest;
  await client.pushManifest(repository, tag, type, manifestBytes, signal);
  return { digest: describeDocument(type, manifestBytes).digest, uploadedBytes };
}

/** What is sent cannot be gone on with everywhere, so each try is from the beginning. */
async function tryAgain<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await work();
    } catch (error) {
      const passes = error instanceof CoppiceError && error.code === 'unavailable';
      if (!passes || attempt >= mostAttempts || signal?.aborted === true) throw error;
      await sleep(pauseMs * attempt, undefined, { signal });
    }
  }
}
