import { z } from 'zod';
import { guestPathSchema } from './processes.ts';
import { flag } from './route-parts.ts';

const ownerSchema = z
  .string()
  .regex(
    /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,31})?$/,
    'must be `user` or `user:group`',
  );
const modeSchema = z.string().regex(/^0?[0-7]{3,4}$/, 'must be octal, such as 644');

export const pathQuery = z.strictObject({ path: guestPathSchema });
export const readFileQuery = z.strictObject({
  path: guestPathSchema,
  offset: z.coerce.number().int().min(0).optional(),
  length: z.coerce.number().int().min(0).optional(),
});
export const writeFileQuery = z.strictObject({
  path: guestPathSchema,
  mode: modeSchema.optional(),
  owner: ownerSchema.optional(),
  parents: flag.default(true),
});
export const writtenSchema = z.object({ path: z.string(), bytes: z.number() });

export const editFileSchema = z.strictObject({
  path: guestPathSchema,
  old_string: z.string().min(1).max(16_777_216),
  new_string: z.string().max(16_777_216),
  replace_all: z.boolean().default(false),
});
export const editedSchema = z.object({ path: z.string(), replacements: z.number(), bytes: z.number() });

export const fileKindSchema = z.enum(['file', 'directory', 'symlink', 'fifo', 'socket', 'device']);
export const fileSchema = z.object({
  path: z.string(),
  name: z.string(),
  kind: fileKindSchema,
  size_bytes: z.number(),
  mode: z.string(),
  uid: z.number(),
  gid: z.number(),
  modified_at: z.string(),
  target: z.string().nullable(),
});
export type FileInfo = z.infer<typeof fileSchema>;

export const listFilesQuery = z.strictObject({
  path: guestPathSchema,
  /** 1 lists the directory itself; larger values go down that many levels. */
  depth: z.coerce.number().int().min(1).max(64).default(1),
  limit: z.coerce.number().int().min(1).max(100_000).default(10_000),
});
export const fileListSchema = z.object({ entries: z.array(fileSchema), truncated: z.boolean() });

export const moveFileSchema = z.strictObject({ from: guestPathSchema, to: guestPathSchema });
export const makeDirectorySchema = z.strictObject({
  path: guestPathSchema,
  parents: z.boolean().default(true),
  mode: modeSchema.optional(),
});
export const removeFileQuery = z.strictObject({ path: guestPathSchema, recursive: flag.default(false) });
export const watchFilesQuery = z.strictObject({ path: guestPathSchema, recursive: flag.default(true) });
export const fileEventSchema = z.object({
  kind: z.enum(['created', 'modified', 'removed', 'moved', 'overflow']),
  path: z.string(),
  to: z.string().nullable(),
});
export type FileEvent = z.infer<typeof fileEventSchema>;
export const unpackedSchema = z.object({ path: z.string(), files: z.number(), bytes: z.number() });
