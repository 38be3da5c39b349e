import type { PackedLayer } from '../image.ts';
import {
  describeDocument,
  type ImageConfigFile,
  type ImageManifest,
  mediaTypes,
  parseImageConfig,
  toJson,
} from './image-manifest.ts';
import type { Platform } from './platform.ts';
import type { ImageDocuments } from './pull-image.ts';

interface HistoryEntry {
  readonly created?: string;
  readonly created_by?: string;
  readonly comment?: string;
  readonly empty_layer?: boolean;
}

export type ConfigSection = NonNullable<ImageConfigFile['config']>;

/** What an image adds to the one that it stands on. */
export interface Addition {
  readonly createdAt: string;
  readonly layers: readonly PackedLayer[];
  readonly history: readonly HistoryEntry[];
  /** In place of what the base says; where it is left out, that stays. */
  readonly config?: ConfigSection;
}

/** The documents of an image that stands on another, or on nothing. What the base says and nobody here knows is kept. */
export function composeImage(
  base: Pick<ImageDocuments, 'manifest' | 'configBytes'> | undefined,
  addition: Addition,
  platform: Platform,
): ImageDocuments {
  const below =
    base === undefined ? undefined : (JSON.parse(base.configBytes.toString('utf8')) as BaseConfig);
  const configBytes = toJson({
    ...(below ?? { ...platform, os: 'linux' }),
    created: addition.createdAt,
    config: addition.config ?? below?.config ?? {},
    rootfs: {
      type: 'layers',
      diff_ids: [...(below?.rootfs.diff_ids ?? []), ...addition.layers.map(({ diffId }) => diffId)],
    },
    history: [...(below?.history ?? historyOf(base?.manifest)), ...addition.history],
  });
  const manifest: ImageManifest = {
    schemaVersion: 2,
    mediaType: mediaTypes.ociManifest,
    config: describeDocument(mediaTypes.ociConfig, configBytes),
    layers: [
      ...(base?.manifest.layers ?? []).map((layer) => ({
        ...layer,
        mediaType: ociLayerType(layer.mediaType),
      })),
      ...addition.layers.map(({ blob }) => blob),
    ],
  };
  const manifestBytes = toJson(manifest);
  const { digest } = describeDocument(mediaTypes.ociManifest, manifestBytes);
  return { digest, manifest, manifestBytes, config: parseImageConfig(configBytes, manifest), configBytes };
}

interface BaseConfig {
  readonly config?: ConfigSection;
  readonly rootfs: { readonly diff_ids: readonly string[] };
  readonly history?: readonly HistoryEntry[];
}

/** Some tools leave it out; with an entry for each layer other tools can still tell them apart. */
const historyOf = (manifest: ImageManifest | undefined): HistoryEntry[] =>
  (manifest?.layers ?? []).map(() => ({}));

/** The same bytes under the name that OCI has for them: one manifest must not hold both kinds. */
const ociLayerType = (type: string): string =>
  type
    .replace('application/vnd.docker.image.rootfs.diff.tar', mediaTypes.ociLayer)
    .replace(/\.(gzip|zstd)$/, '+$1');
