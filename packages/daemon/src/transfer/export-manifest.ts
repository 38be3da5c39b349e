import {
  CoppiceError,
  createSandboxSchema,
  driverNameSchema,
  environmentSchema,
  idleActionSchema,
  imageRefSchema,
  labelsSchema,
  nameSchema,
  networkPolicySchema,
} from '@coppice/protocol';
import { z } from 'zod';

const { cpus, memory_mb, disk_mb, pids, idle_timeout_s, max_lifetime_s } = createSandboxSchema.shape;
const word = z.string().regex(/^[\x21-\x7e]{1,64}$/);

const layerPart = /^sha256:[0-9a-f]{64}$/;
const partNames = ['image', 'image-manifest', 'image-config', 'disk', 'memory'] as const;
/** A layer is named by the digest of what it is packed in. */
export type PartName = (typeof partNames)[number] | `sha256:${string}`;
export const isLayer = (name: PartName): boolean => layerPart.test(name);
const partNameSchema = z.custom<PartName>(
  (name) =>
    typeof name === 'string' && (layerPart.test(name) || (partNames as readonly string[]).includes(name)),
  'is no part',
);
/** What may follow the manifest: an image of one directory, or what describes one of layers and those that the file brings. */
const partOrder = /^(image,|image-manifest,image-config,(sha256:\w+,)*)?disk,(memory,)?$/;

/**
 * What an exported file says about itself. Nothing in it is believed: each value has the form that the same value of a
 * call would have, and a key that is not known is refused, as it may mean something that would be lost.
 */
const exportManifestSchema = z
  .strictObject({
    kind: z.enum(['snapshot', 'checkpoint']),
    coppice_version: z.string().max(64),
    name: nameSchema,
    note: z.string().max(4096),
    tags: z.array(nameSchema).max(32),
    sandbox_name: nameSchema,
    created_at: z.iso.datetime(),
    engine: word,
    driver: driverNameSchema,
    pause_ms: z.number().min(0).nullable(),
    image: z.strictObject({
      name: imageRefSchema,
      digest: z.string().regex(/^sha256(-meta)?:[0-9a-f]{64}$/),
    }),
    limits: z.strictObject({
      cpus: cpus.unwrap(),
      memory_mb: memory_mb.unwrap(),
      disk_mb: disk_mb.unwrap(),
      pids: pids.unwrap(),
    }),
    labels: labelsSchema,
    network: networkPolicySchema,
    idle_timeout_s: idle_timeout_s.unwrap(),
    idle_action: idleActionSchema,
    max_lifetime_s: max_lifetime_s.unwrap(),
    env_names: z.array(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,255}$/)).max(1024),
    /** Null: the values stayed where they were. */
    env: environmentSchema.nullable(),
    /** What the memory depends on; null where there is none. */
    memory: z
      .strictObject({
        program: word,
        version: word,
        architecture: word,
        cpu_features: z.array(word).max(4096),
      })
      .nullable(),
    parts: z.array(partNameSchema).max(200),
    /** How many bytes each part is expected to have, for who shows how far it is. */
    sizes: z.record(z.string().max(96), z.int().min(0)).default({}),
  })
  .refine((manifest) => manifest.parts.includes('disk'), 'a disk is missing')
  .refine(
    ({ parts }) =>
      partOrder.test(parts.map((name) => `${name},`).join('')) && new Set(parts).size === parts.length,
    'its parts are not in order',
  )
  .refine(
    ({ kind, memory, parts }) =>
      (kind === 'checkpoint') === (memory !== null) && parts.includes('memory') === (memory !== null),
    'it contradicts itself about memory',
  );
export type ExportManifest = z.output<typeof exportManifestSchema>;

export const parseExportManifest = (text: string): ExportManifest => {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    throw new CoppiceError('invalid_argument', 'the manifest in the file is not JSON', { cause });
  }
  const parsed = exportManifestSchema.safeParse(json);
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'it'}: ${message}`);
  throw new CoppiceError(
    'invalid_argument',
    `the manifest in the file is refused: ${issues.slice(0, 5).join('; ')}`,
    {
      hint: 'Nothing was written. A newer Coppice may have made the file; update this one, or export again.',
    },
  );
};
