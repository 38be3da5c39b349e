import { createHash } from 'node:crypto';
import { CoppiceError } from '@coppice/protocol';
import { z } from 'zod';

const digestSchema = z.string().regex(/^sha256:[0-9a-f]{64}$/, 'must be a sha256 digest');
const sizeSchema = z.int().min(0);

const descriptorSchema = z.object({ mediaType: z.string(), digest: digestSchema, size: sizeSchema });
export type Descriptor = z.infer<typeof descriptorSchema>;

const manifestSchema = z.object({
  schemaVersion: z.literal(2),
  mediaType: z.string().optional(),
  config: descriptorSchema,
  layers: z.array(descriptorSchema).max(1000),
});
export type ImageManifest = z.infer<typeof manifestSchema>;

const indexSchema = z.object({
  schemaVersion: z.literal(2),
  mediaType: z.string().optional(),
  manifests: z
    .array(
      descriptorSchema.extend({
        platform: z
          .object({ architecture: z.string(), os: z.string(), variant: z.string().optional() })
          .optional(),
        annotations: z.record(z.string(), z.string()).optional(),
      }),
    )
    .max(1000),
});
export type ImageIndex = z.infer<typeof indexSchema>;

const configSchema = z.object({
  architecture: z.string().optional(),
  os: z.string().optional(),
  created: z.string().optional(),
  config: z
    .object({
      User: z.string().nullish(),
      Env: z.array(z.string()).nullish(),
      Entrypoint: z.array(z.string()).nullish(),
      Cmd: z.array(z.string()).nullish(),
      WorkingDir: z.string().nullish(),
      ExposedPorts: z.record(z.string(), z.unknown()).nullish(),
      Labels: z.record(z.string(), z.string()).nullish(),
      StopSignal: z.string().nullish(),
      Volumes: z.record(z.string(), z.unknown()).nullish(),
      Shell: z.array(z.string()).nullish(),
      Healthcheck: z.record(z.string(), z.unknown()).nullish(),
      OnBuild: z.array(z.string()).nullish(),
    })
    .nullish(),
  rootfs: z.object({ type: z.literal('layers'), diff_ids: z.array(digestSchema).max(1000) }),
});
export type ImageConfigFile = z.infer<typeof configSchema>;

export const mediaTypes = {
  ociIndex: 'application/vnd.oci.image.index.v1+json',
  ociManifest: 'application/vnd.oci.image.manifest.v1+json',
  ociConfig: 'application/vnd.oci.image.config.v1+json',
  ociLayer: 'application/vnd.oci.image.layer.v1.tar',
  ociLayerGzip: 'application/vnd.oci.image.layer.v1.tar+gzip',
  dockerIndex: 'application/vnd.docker.distribution.manifest.list.v2+json',
  dockerManifest: 'application/vnd.docker.distribution.manifest.v2+json',
} as const;

export const acceptedManifests = [
  mediaTypes.ociIndex,
  mediaTypes.ociManifest,
  mediaTypes.dockerIndex,
  mediaTypes.dockerManifest,
].join(', ');

const indexTypes: readonly string[] = [mediaTypes.ociIndex, mediaTypes.dockerIndex];
const manifestTypes: readonly string[] = [mediaTypes.ociManifest, mediaTypes.dockerManifest];
const layerTypes =
  /^application\/vnd\.(?:oci\.image\.layer\.(?:nondistributable\.)?v1\.tar(?:\+gzip|\+zstd)?|docker\.image\.rootfs\.diff\.tar(?:\.gzip|\.zstd)?)$/;

/** What a document is said to be must be what it says of itself: one that is read as two things can be passed off as either. */
export function parseManifest(
  bytes: Buffer,
  contentType: string | undefined,
): { readonly index: ImageIndex } | { readonly manifest: ImageManifest } {
  const json = parseJson(bytes);
  const own = (json as { mediaType?: unknown }).mediaType;
  const said = contentType?.split(';')[0]?.trim();
  const known = (type: unknown): type is string =>
    typeof type === 'string' && /^application\/vnd\./.test(type);
  if (known(own) && known(said) && own !== said)
    throw new CoppiceError('unsafe', `the registry calls a document ${said} that calls itself ${own}`);
  const type = known(own) ? own : said;
  if (type !== undefined && indexTypes.includes(type)) return { index: checkedIndex(json) };
  if (type !== undefined && manifestTypes.includes(type)) return { manifest: checkedManifest(json) };
  if (type !== undefined && /manifest\.v1\+(?:prettyjws|json)$/.test(type))
    throw new CoppiceError(
      'unsupported',
      'the image is in the form of 2014 (schema 1), which no registry makes any more',
      {
        hint: 'Pull it with a tool that still can, push it again, then try again.',
      },
    );
  // Without a word about what it is: it cannot be both.
  if (type === undefined || type === 'application/json' || type === 'application/octet-stream') {
    const { manifests, layers } = json as { manifests?: unknown; layers?: unknown };
    if (manifests !== undefined && layers === undefined) return { index: checkedIndex(json) };
    if (layers !== undefined && manifests === undefined) return { manifest: checkedManifest(json) };
  }
  throw new CoppiceError('unsupported', `this is no image: ${String(type).slice(0, 100)}`);
}

function checkedIndex(json: unknown): ImageIndex {
  return checked(indexSchema, json, 'the list of platforms');
}

function checkedManifest(json: unknown): ImageManifest {
  const manifest = checked(manifestSchema, json, 'the manifest');
  for (const { mediaType, size } of manifest.layers) {
    if (!layerTypes.test(mediaType))
      throw new CoppiceError(
        'unsupported',
        `the image holds ${mediaType.slice(0, 100)}, which is no layer of files`,
        {
          hint: 'It may be a chart, a signature or another thing that is kept in registries, and no image.',
        },
      );
    if (size === 0) throw new CoppiceError('invalid_argument', 'the image has a layer of no bytes');
  }
  return manifest;
}

/** The index of a layout on a disk, which says nothing of what it is. */
export const parseIndex = (bytes: Buffer): ImageIndex => checkedIndex(parseJson(bytes));

export const toJson = (document: object): Buffer => Buffer.from(JSON.stringify(document));

export const describeDocument = (mediaType: string, bytes: Buffer): Descriptor => ({
  mediaType,
  digest: `sha256:${createHash('sha256').update(bytes).digest('hex')}`,
  size: bytes.length,
});

export function parseImageConfig(bytes: Buffer, manifest: ImageManifest): ImageConfigFile {
  const config = checked(configSchema, parseJson(bytes), 'the configuration');
  if (config.rootfs.diff_ids.length !== manifest.layers.length)
    throw new CoppiceError(
      'invalid_argument',
      'the image says something else about its layers in its two documents',
    );
  return config;
}

function checked<T extends z.ZodType>(schema: T, json: unknown, what: string): z.output<T> {
  const parsed = schema.safeParse(json);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new CoppiceError(
    'invalid_argument',
    `${what} of the image is malformed: ${issue?.path.join('.')}: ${issue?.message}`,
  );
}

function parseJson(bytes: Buffer): object {
  try {
    const json: unknown = JSON.parse(bytes.toString('utf8'));
    if (typeof json === 'object' && json !== null && !Array.isArray(json)) return json;
  } catch (cause) {
    throw new CoppiceError('invalid_argument', 'a document of the image is not JSON', { cause });
  }
  throw new CoppiceError('invalid_argument', 'a document of the image is not a JSON object');
}
