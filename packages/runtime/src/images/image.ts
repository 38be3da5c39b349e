import type { Descriptor } from './oci/image-manifest.ts';
import type { ImageSettings } from './oci/image-settings.ts';

/** An immutable root filesystem that sandboxes are made from. */
export interface Image {
  readonly id: string;
  readonly name: string;
  readonly source: ImageSource;
  /** What the files add up to; hardlinked names count once. */
  readonly sizeBytes: number;
  readonly fileCount: number;
  readonly createdAt: string;
  /**
   * `sha256:` covers names, metadata and content; `sha256-meta:` names and metadata (size and modification time
   * stand for the content), for images that share their files with the machine's own.
   */
  readonly digest: string;
  /** What could not be kept of the source, in words for people. */
  readonly warnings: readonly string[];
  /** Of an image that is made of layers: their diff ids, lowest first, and the digests of what they were packed in. */
  readonly layers?: readonly string[];
  readonly blobs?: readonly string[];
  /** What such an image says about the processes that run in it. */
  readonly settings?: ImageSettings;
  /** Of an image that is one directory: what it was packed in when somebody asked for it as a layer. */
  readonly packed?: PackedLayer;
}

/** A layer that was packed here, with the digest of its tar. */
export interface PackedLayer {
  readonly diffId: string;
  readonly blob: Descriptor;
}

export type ImageSource =
  | { readonly kind: 'host' }
  | { readonly kind: 'directory'; readonly path: string }
  | { readonly kind: 'archive'; readonly format: 'tar' | 'gzip' | 'zstd' | 'docker' | 'oci' }
  /** From a Dockerfile. The key is of everything that it was made of. */
  | { readonly kind: 'build'; readonly key: string }
  /** Made of a snapshot or a sandbox. */
  | { readonly kind: 'commit'; readonly of: string }
  | { readonly kind: 'debian'; readonly suite: string }
  /** The digest is of what the name stood for when it was pulled. */
  | { readonly kind: 'registry'; readonly reference: string; readonly digest: string }
  /** Came with a snapshot that was exported elsewhere. */
  | { readonly kind: 'export' };

export interface ImageProgress {
  readonly phase: string;
  /** What of the phase this is about, where several things are done at once. */
  readonly detail?: string;
  readonly done: number;
  /** Null where the end is not known beforehand. */
  readonly total: number | null;
  readonly unit: 'bytes' | 'steps';
}

export interface BuildOptions {
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: ImageProgress) => void;
}

/** What a builder has to say about the root filesystem that it made. */
export interface BuiltRootfs {
  readonly source: ImageSource;
  readonly warnings: readonly string[];
}
