import { z } from 'zod';
import { fileKindSchema } from './files.ts';
import { nameSchema, sandboxIdSchema, snapshotIdSchema } from './ids.ts';
import { imageRefSchema } from './images.ts';
import { guestPathSchema } from './processes.ts';
import { projectRefSchema, sandboxRefSchema, snapshotRefSchema, treeRefSchema } from './references.ts';
import { createdSandboxSchema, environmentSchema, labelsSchema, sandboxStateSchema } from './sandboxes.ts';

export const createSnapshotSchema = z.strictObject({
  /** Unique within the sandbox it is of; found by `sandbox/name` style references through the sandbox. */
  name: nameSchema.optional(),
  note: z.string().max(4096).default(''),
  tags: z.array(nameSchema).max(32).default([]),
  /** Keep the memory of every process too: a checkpoint. */
  memory: z.boolean().default(false),
});

/** One that was automatic is kept from then on, as if somebody had asked for it; an empty object does just that. */
export const updateSnapshotSchema = z.strictObject({
  name: nameSchema.optional(),
  note: z.string().max(4096).optional(),
});

export const snapshotSchema = z.object({
  id: snapshotIdSchema,
  name: z.string(),
  note: z.string(),
  tags: z.array(z.string()),
  /** The sandbox it is of; it may be gone while the snapshot lives on. */
  sandbox_id: sandboxIdSchema,
  sandbox_name: z.string(),
  project: z.string(),
  /** The snapshot that the disk had grown from. */
  parent_id: snapshotIdSchema.nullable(),
  image: z.string(),
  driver: z.string(),
  engine: z.string(),
  /** Coppice took it for a fork, a merge or an undo, and removes it when nothing needs it any more. */
  automatic: z.boolean(),
  has_memory: z.boolean(),
  memory_bytes: z.number().nullable(),
  /** What of its memory no other checkpoint shares; counted in the background, null until then. */
  memory_used_bytes: z.number().nullable(),
  /** How long the sandbox stood still for it. */
  pause_ms: z.number().nullable(),
  /** Counted in the background; null until then. */
  referenced_bytes: z.number().nullable(),
  used_bytes: z.number().nullable(),
  created_at: z.string(),
});
export type Snapshot = z.infer<typeof snapshotSchema>;

/** Directories of the host that are mounted there: they are shared, and no part of what is kept, forked or compared. */
const leftOutSchema = z.array(z.string());
export const takenSnapshotSchema = snapshotSchema.extend({ left_out: leftOutSchema });
export type TakenSnapshot = z.infer<typeof takenSnapshotSchema>;

export const restoreSchema = z.strictObject({
  /** By id, or by name within the sandbox that the call is about. */
  snapshot: snapshotRefSchema,
  /** Keep nothing of what is there now: the restore cannot be undone. */
  discard: z.boolean().default(false),
});
export const restoredSchema = z.object({
  sandbox_id: sandboxIdSchema,
  snapshot_id: snapshotIdSchema,
  state: sandboxStateSchema,
  with_memory: z.boolean(),
  /** The files as they were just before: restore it to undo the restore. Null when they were to be discarded. */
  undo_snapshot_id: snapshotIdSchema.nullable(),
});

const forkFields = {
  name: nameSchema.optional(),
  /** With count above 1: names are prefix-1, prefix-2 … */
  name_prefix: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,50}$/)
    .optional(),
  count: z.int().min(1).max(100).default(1),
  labels: labelsSchema.optional(),
  /** Added to the environment that carries over. */
  env: environmentSchema.optional(),
};
export const forkSnapshotSchema = z.strictObject(forkFields);
export const forkSandboxSchema = z.strictObject({
  ...forkFields,
  /** Fork from this snapshot of the sandbox instead of from what it is now. */
  snapshot: snapshotRefSchema.optional(),
  /** From now, with the memory of every process. */
  memory: z.boolean().default(false),
});
export const forkedSchema = z.object({
  snapshot_id: snapshotIdSchema,
  forks: z.array(createdSandboxSchema),
  left_out: leftOutSchema,
  failures: z.array(z.object({ index: z.number(), name: z.string(), code: z.string(), message: z.string() })),
});
export type Forked = z.infer<typeof forkedSchema>;

/** An absolute path and what is below it, or a name (`*` is any letters in it) for all that is so called. */
const excludeSchema = guestPathSchema
  .refine((path) => !path.split('/').includes('..'), 'must not hold `..`')
  .describe('An absolute path, or a name such as node_modules or *.log.');
/** One, or several. */
const several = (schema: typeof guestPathSchema) =>
  z.union([schema.transform((one) => [one]), z.array(schema).max(1000)]).optional();

/** Each side is a snapshot (id, or `sandbox:name`) or a sandbox (as it is now). */
export const diffQuery = z.strictObject({
  from: treeRefSchema,
  to: treeRefSchema,
  /** Only these, and what is below where they are directories. */
  path: several(guestPathSchema),
  /** Not these, nor what is below: absolute paths, or names of files and directories wherever they are. */
  exclude: several(excludeSchema),
  limit: z.coerce.number().int().min(1).max(100_000).default(10_000),
});
const changeKindSchema = z.enum(['added', 'removed', 'modified', 'mode']);
export const changeSchema = z.object({
  path: z.string(),
  change: changeKindSchema,
  kind: fileKindSchema,
  size_before: z.number().nullable(),
  size_after: z.number().nullable(),
  mode_before: z.string().nullable(),
  mode_after: z.string().nullable(),
});
export type Change = z.infer<typeof changeSchema>;
const changeSummarySchema = z.object({
  added: z.number(),
  removed: z.number(),
  modified: z.number(),
  mode: z.number(),
});
export const diffSchema = z.object({
  from: z.string(),
  to: z.string(),
  changes: z.array(changeSchema),
  truncated: z.boolean(),
  summary: changeSummarySchema,
  left_out: leftOutSchema,
});
export type Diff = z.infer<typeof diffSchema>;
export const fileDiffQuery = z.strictObject({
  from: treeRefSchema,
  to: treeRefSchema,
  path: guestPathSchema,
  /** At most this much of the diff, in whole lines, for readers that show only its beginning. All of it unless told. */
  max_bytes: z.coerce.number().int().min(1).max(4_194_304).optional(),
});
export const fileDiffSchema = z.object({
  path: z.string(),
  /** It is one on either side: ask for the list of what differs below it. */
  directory: z.boolean(),
  binary: z.boolean(),
  unified: z.string(),
  /** The file is too large to compare, and `unified` is empty; or `unified` was cut at `max_bytes`. */
  truncated: z.boolean(),
});

export const patchQuery = diffQuery.omit({ limit: true });
export const patchSchema = z.object({
  /** For `git apply`. Names begin below the path where one is given, else at the root. */
  patch: z.string(),
  files: z.number(),
  /** Changes that no patch of text can hold: files that are no text, very large ones, modes other than the one that git keeps. */
  missing: z.array(
    z.object({ path: z.string(), reason: z.enum(['binary', 'too_large', 'mode', 'kind', 'name']) }),
  ),
  left_out: leftOutSchema,
});
export type Patch = z.infer<typeof patchSchema>;

export const mergeSchema = z.strictObject({
  /** The fork whose changes since its base are brought in. */
  from: sandboxRefSchema,
  /** Who wins where both changed the same path. Without it conflicts stop the merge and nothing is written. */
  prefer: z.enum(['ours', 'theirs']).optional(),
  /** The same for single paths; it goes before `prefer`. A path that is in no conflict is refused. */
  choose: z
    .record(guestPathSchema, z.enum(['ours', 'theirs']))
    .refine((choices) => Object.keys(choices).length <= 10_000, 'more than 10,000 paths')
    .default({}),
  /** Only these, and what is below. Such a merge is not remembered: the next one starts from the same point. */
  path: several(guestPathSchema),
  /** Not these, nor what is below: absolute paths, or names of files and directories wherever they are. */
  exclude: several(excludeSchema),
  dry_run: z.boolean().default(false),
});
export const mergedSchema = z.object({
  into: sandboxIdSchema,
  from: sandboxIdSchema,
  base_snapshot_id: snapshotIdSchema.nullable(),
  applied: z.boolean(),
  /** The first 10,000; `summary` counts all. */
  changes: z.array(changeSchema),
  /** The first 10,000; `conflict_count` counts all. */
  conflicts: z.array(z.object({ path: z.string(), ours: changeKindSchema, theirs: changeKindSchema })),
  truncated: z.boolean(),
  summary: changeSummarySchema,
  conflict_count: z.number(),
  /** Repositories that both sides had changed, which git merged: how many commits came into what is checked out. */
  repositories: z.array(z.object({ path: z.string(), commits: z.number() })),
  left_out: leftOutSchema,
  /** Taken of the target just before anything was written: restore it to undo the merge. */
  undo_snapshot_id: snapshotIdSchema.nullable(),
});
export type Merged = z.infer<typeof mergedSchema>;

export const lineageNodeSchema = z.object({
  kind: z.enum(['image', 'sandbox', 'snapshot']),
  id: z.string(),
  name: z.string(),
  parent: z.string().nullable(),
  /** The snapshot or image that its files grew from: of a sandbox, what it was last restored to, merged on or taken as. */
  grown_from: z.string().nullable(),
  /** Snapshots whose changes were merged into it. */
  merged: z.array(z.string()),
  /** Its state began with a restore: to what, which snapshot keeps what was there before, and when. */
  restored: z.object({ to: z.string(), left: z.string().nullable(), at: z.string() }).nullable(),
  state: z.string().nullable(),
  /** A snapshot that Coppice took for itself. */
  automatic: z.boolean(),
  has_memory: z.boolean(),
  memory_bytes: z.number().nullable(),
  memory_used_bytes: z.number().nullable(),
  referenced_bytes: z.number().nullable(),
  used_bytes: z.number().nullable(),
  created_at: z.string(),
});
export const lineageSchema = z.object({ nodes: z.array(lineageNodeSchema) });
export type LineageNode = z.infer<typeof lineageNodeSchema>;

const flag = (standard: boolean) =>
  z
    .enum(['true', 'false'])
    .transform((text) => text === 'true')
    .default(standard);
export const exportSchema = z.strictObject({
  memory: z.boolean().default(true),
  /** Carry the image too, so that the file needs nothing where it is imported. */
  image: z.boolean().default(true),
  /** Carry the values of its environment, which may be secrets. Their names are always in the file. */
  env: z.boolean().default(false),
  /** An image that is there: of one made of layers, only those are carried that this one lacks. */
  base_image: imageRefSchema.optional(),
  /** What `GET /v1/snapshots/import` answered there: nothing of it is carried. */
  have: z
    .array(z.string().regex(/^sha256(-meta)?:[0-9a-f]{64}$/, 'must be a digest'))
    .max(20_000)
    .default([]),
});
export const listSnapshotsQuery = z.strictObject({ project: projectRefSchema.optional() });
export const lineageQuery = z.strictObject({ project: projectRefSchema.optional() });

export const importQuery = z.strictObject({
  name: nameSchema.optional(),
  /** The project that it joins; the default one where nothing is said. */
  project: projectRefSchema.optional(),
  /** Take the files alone where the memory in the file does not fit this machine. */
  disk_only: flag(false),
});
/** By digest: images, packed layers of images. */
export const importContentsSchema = z.object({ have: z.array(z.string()) });

export const importedSchema = snapshotSchema.extend({
  /** The file brought its image; otherwise it was here already. */
  image_added: z.boolean(),
  /** The file holds memory that was not taken, as asked. */
  memory_left_out: z.boolean(),
  /** Variables of its environment whose values are not in the file. */
  missing_env: z.array(z.string()),
  /** Ports of the machine that it was allowed to use where it came from; here nobody has allowed them. */
  host_ports_left_out: z.array(z.number().int()),
});
export type Imported = z.infer<typeof importedSchema>;

/** A disk or a snapshot that the database did not know when the daemon started, and that is newer than it. */
export const straySchema = z.object({
  id: z.string(),
  /** What it was: the disk of a sandbox, or a snapshot. */
  kind: z.enum(['sandbox', 'snapshot']),
  created_at: z.string(),
});
export type Stray = z.infer<typeof straySchema>;
export const keepStraySchema = z.strictObject({
  /** The image that its sandbox stood on; the default image unless told otherwise. */
  image: imageRefSchema.optional(),
  /** Of the snapshot that it becomes. */
  name: nameSchema.optional(),
});
