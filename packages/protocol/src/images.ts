import { z } from 'zod';
import { imageIdSchema } from './ids.ts';
import { treeRefSchema } from './references.ts';

/** An id or a name of an image. What is between the characters is judged where it is looked up. */
export const imageRefSchema = z
  .string()
  .regex(/^(?!.*\.\.)[A-Za-z0-9[][A-Za-z0-9_.:/@[\]-]{0,511}$/, 'must be an id or a name of an image');

/** What an image says about the processes that run in it. */
export const imageSettingsSchema = z.object({
  env: z.record(z.string(), z.string()),
  entrypoint: z.array(z.string()),
  cmd: z.array(z.string()),
  user: z.string().nullable(),
  working_dir: z.string().nullable(),
  /** Such as `8080/tcp`. */
  exposed_ports: z.array(z.string()),
  labels: z.record(z.string(), z.string()),
  stop_signal: z.string().nullable(),
});

export const imageSchema = z.object({
  id: imageIdSchema,
  name: z.string(),
  source: z.string(),
  size_bytes: z.number(),
  digest: z.string(),
  created_at: z.string(),
  /** Sandboxes and snapshots that stand on it. */
  used_by: z.array(z.string()),
  /** Of an image of a registry: the digest that its name stood for when it was pulled. */
  registry_digest: z.string().nullable(),
  /** The digests of its layers, lowest first; empty for an image that is not made of layers. */
  layers: z.array(z.string()),
  settings: imageSettingsSchema.nullable(),
  /** What could not be kept of its source, for people. */
  warnings: z.array(z.string()),
});
export type Image = z.infer<typeof imageSchema>;

export const makeImageSchema = z.strictObject({
  name: imageRefSchema.optional(),
  /** `host`, `debian:<suite>`, or the absolute path of a directory or archive on the daemon's machine. */
  source: z.union([
    z.literal('host'),
    z.string().regex(/^debian:[a-z]{2,20}$/, 'must be debian:<suite>'),
    z.string().startsWith('/', 'must be `host`, `debian:<suite>` or an absolute path').max(4096),
  ]),
  /** Of `host` and `debian:<suite>`: make it anew where there is one. Sandboxes stay on the one that they stand on. */
  refresh: z.boolean().default(false),
});
export const importImageQuery = z.strictObject({
  /** Only an image as `docker save` or OCI tools write it may bring its own name. */
  name: imageRefSchema.optional(),
});

export const commitImageSchema = z.strictObject({
  /** A snapshot, or a sandbox as it is now. */
  from: treeRefSchema,
  /** With a tag, as in `docker tag`. */
  name: imageRefSchema,
  /** Goes into the history of the image. */
  comment: z.string().max(1000).optional(),
});

export const pushImageSchema = z.strictObject({
  /** Where to, as in `docker push`; its own name where nothing is said. */
  to: imageRefSchema.optional(),
});

/** Made by sending the files that the build may copy, as a tar. It is good for one build, and for an hour. */
export const buildContextSchema = z.object({ id: z.string() });

const variablesSchema = z.record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,255}$/), z.string().max(131_072));

export const buildImageSchema = z.strictObject({
  /** With a tag, as in `docker build -t`. */
  name: imageRefSchema,
  /** The text of the Dockerfile. */
  dockerfile: z.string().min(1).max(1_048_576),
  context: z
    .string()
    .regex(/^[0-9a-f]{32}$/, 'must be the id of files that were sent')
    .optional(),
  args: variablesSchema.default({}),
  /** By id; they reach the commands that mount them, and are in no image, snapshot or event. */
  secrets: z
    .record(z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/), z.string().max(524_288))
    .default({}),
  /** The last stage to build; the last of the file where nothing is said. */
  target: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/, 'must be the name or the number of a stage')
    .optional(),
  network: z.enum(['none', 'internet']).default('none'),
  no_cache: z.boolean().default(false),
  cpus: z.number().min(0.1).max(256).optional(),
  memory_mb: z.int().min(16).max(4_194_304).optional(),
  disk_mb: z.int().min(16).max(67_108_864).optional(),
});

/** What a build says while it goes on; of type `image` at the end. */
export const buildEventSchema = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('step'),
    step: z.number(),
    steps: z.number(),
    stage: z.string(),
    line: z.number(),
    text: z.string(),
    /** `cached`: an earlier build did the same. */
    state: z.enum(['running', 'cached', 'done']),
  }),
  z.object({ type: z.literal('output'), stream: z.enum(['stdout', 'stderr']), text: z.string() }),
  z.object({ type: z.literal('warning'), text: z.string() }),
  z.object({ type: z.literal('image'), image: imageSchema }),
]);
export type BuildEvent = z.infer<typeof buildEventSchema>;

/** Of type `layer`: how far one of its layers is. Of type `pushed`: what the registry has now, at the end. */
export const pushEventSchema = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('layer'),
    digest: z.string(),
    state: z.enum(['waiting', 'uploading', 'present', 'mounted', 'done']),
    done_bytes: z.number(),
    total_bytes: z.number(),
  }),
  z.object({
    type: z.literal('pushed'),
    name: z.string(),
    digest: z.string(),
    uploaded_bytes: z.number(),
  }),
]);
export type PushEvent = z.infer<typeof pushEventSchema>;

/** As in `docker pull`: `python:3.12-slim`, `ghcr.io/org/app@sha256:…`. */
export const pullImageSchema = z.strictObject({
  name: imageRefSchema,
  /** Only where there is no image of that name here, as when a sandbox is made of it. */
  if_missing: z.boolean().default(false),
});

/** Of type `layer`: how far one of its layers is. Of type `image`: the image, at the end. */
export const pullEventSchema = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('layer'),
    digest: z.string(),
    state: z.enum(['waiting', 'downloading', 'unpacking', 'done']),
    done_bytes: z.number(),
    total_bytes: z.number(),
  }),
  z.object({ type: z.literal('image'), image: imageSchema }),
]);
export type PullEvent = z.infer<typeof pullEventSchema>;

export const pruneImagesSchema = z.strictObject({
  /** All that nothing stands on, not only those whose name went to a newer one. */
  all: z.boolean().default(false),
  /** Also the snapshots that builds left for the next ones. */
  builds: z.boolean().default(false),
});
export const prunedImagesSchema = z.object({
  /** Snapshots of builds that were deleted. */
  build_snapshots: z.number(),
  removed: z.array(z.object({ id: imageIdSchema, name: z.string() })),
  freed_bytes: z.number(),
});

const registrySchema = z
  .string()
  .regex(
    /^[A-Za-z0-9[][A-Za-z0-9.:[\]-]{0,252}$/,
    'must be the host of a registry, with its port if it has one',
  );
export const registryParams = z.strictObject({ registry: registrySchema });
export const loginSchema = z.strictObject({
  registry: registrySchema,
  username: z
    .string()
    .min(1)
    .max(512)
    .regex(/^[^:\0]+$/, 'must not hold a colon'),
  password: z.string().min(1).max(65_536),
});
/** Without the password. */
export const registryLoginSchema = z.object({ registry: z.string(), username: z.string() });
