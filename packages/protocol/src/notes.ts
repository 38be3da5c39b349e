import { z } from 'zod';
import { flag } from './route-parts.ts';

/** `.md` may be left out. */
export const notePathSchema = z.string().min(1).max(1024);
const folderSchema = z.string().max(1024);
export const noteTagSchema = z.string().regex(/^[\w/-]{1,64}$/, 'must be letters, digits, `_`, `/` or `-`');
const keySchema = z
  .string()
  .regex(/^[A-Za-z0-9_][A-Za-z0-9_ .-]{0,63}$/, 'must be letters, digits, spaces, `_`, `.` or `-`');
export const noteValueSchema = z.union([z.string(), z.number(), z.boolean(), z.null(), z.array(z.string())]);

export const noteEntrySchema = z.object({
  path: z.string(),
  is_dir: z.boolean(),
  size: z.number(),
  modified: z.string(),
});
export type NoteEntry = z.infer<typeof noteEntrySchema>;

export const listNotesQuery = z.strictObject({
  /** Only what is in this folder. */
  folder: folderSchema.default(''),
  recursive: flag.default(false),
});

export const readNoteQuery = z.strictObject({
  path: notePathSchema,
  /** json: the frontmatter as values, apart from the text. */
  format: z.enum(['markdown', 'json']).default('markdown'),
});
export const noteSchema = z.object({
  path: z.string(),
  content: z.string(),
  /** The values at the head of the note, where they were asked for. */
  frontmatter: z.record(z.string(), z.unknown()).optional(),
});
export type Note = z.infer<typeof noteSchema>;

export const writeNoteSchema = z.strictObject({
  path: notePathSchema,
  content: z.string().max(10_485_760),
  mode: z.enum(['overwrite', 'append', 'prepend']).default('overwrite'),
});

export const notePathQuery = z.strictObject({ path: notePathSchema });

export const moveNoteSchema = z.strictObject({
  from: notePathSchema,
  to: notePathSchema,
  overwrite: z.boolean().default(false),
});

export const replaceInNoteSchema = z.strictObject({
  path: notePathSchema,
  search: z.string().min(1).max(65_536),
  replace: z.string().max(1_048_576),
  regex: z.boolean().default(false),
});
export const replacedInNoteSchema = z.object({ path: z.string(), replacements: z.number() });

export const searchNotesQuery = z.strictObject({
  query: z.string().min(1).max(1024),
  regex: flag.default(false),
  tag: noteTagSchema.optional(),
  folder: folderSchema.optional(),
  limit: z.coerce.number().int().min(1).max(1000).default(20),
});
export const foundInNotesSchema = z.object({
  results: z.array(
    z.object({ path: z.string(), line_number: z.number(), line: z.string(), context: z.string() }),
  ),
  /** There are more lines than were asked for. */
  truncated: z.boolean(),
});
export type FoundInNotes = z.infer<typeof foundInNotesSchema>;

export const changeFrontmatterSchema = z.strictObject({
  path: notePathSchema,
  set: z.record(keySchema, noteValueSchema).optional(),
  delete: z.array(keySchema).max(64).optional(),
  add_tags: z.array(noteTagSchema).max(64).optional(),
  remove_tags: z.array(noteTagSchema).max(64).optional(),
});
export const changedFrontmatterSchema = z.object({
  path: z.string(),
  frontmatter: z.record(z.string(), z.unknown()),
  tags: z.array(z.string()),
});

/** Of one note, or all that are in use. */
export const noteTagsQuery = z.strictObject({ path: notePathSchema.optional() });
export const noteTagsSchema = z.object({ tags: z.array(z.string()) });
