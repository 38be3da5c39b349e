import {
  CoppiceError,
  type NoteEntry,
  noteEntrySchema,
  notePathSchema,
  noteTagSchema,
  noteValueSchema,
} from '@coppice/protocol';
import { z } from 'zod';
import { defineTool, readOnly, replacing, type Tool, unbounded } from '../tool.ts';
import type { ToolContext } from '../tool-context.ts';

const notePath = notePathSchema.describe('Path of a note in the vault, such as plans/today.md.');
const frontmatterSchema = z.record(z.string(), z.unknown());
const next = { not_found: 'Call vault_list or vault_search to see the notes there are.' };

const listNotes = async (context: ToolContext, folder: string, recursive: boolean): Promise<NoteEntry[]> =>
  (await context.call('listNotes', { query: { folder, recursive: recursive ? 'true' : 'false' } })).items;

const read = defineTool({
  name: 'vault_read',
  title: 'Read a shared note',
  description: 'Text and frontmatter of a note. Do not use it for files of a workspace (file_read).',
  actions: ['readNote'],
  annotations: readOnly,
  input: z.strictObject({
    path: notePath,
    format: z.enum(['markdown', 'json']).default('markdown').describe('json has the frontmatter apart.'),
  }),
  output: z.object({ path: z.string(), content: z.string(), frontmatter: frontmatterSchema.optional() }),
  next,
  content: (note) => [
    { type: 'text', text: note.frontmatter === undefined ? note.content : JSON.stringify(note) },
  ],
  run: (context, query) => context.call('readNote', { query }),
});

const write = defineTool({
  name: 'vault_write',
  title: 'Write a shared note',
  description:
    'Creates or changes a markdown note that every session sees and that outlives all workspaces. Do not use it for code or data of a workspace (file_write), nor for secrets: all sessions can read it.',
  actions: ['writeNote'],
  annotations: unbounded,
  input: z.strictObject({
    path: notePath,
    content: z.string().max(10_485_760).describe('Markdown.'),
    mode: z
      .enum(['overwrite', 'append', 'prepend'])
      .default('overwrite')
      .describe('What becomes of the text there is.'),
  }),
  output: z.object({ path: z.string(), bytes: z.number() }),
  run: (context, body) => context.call('writeNote', { body }),
});

const search = defineTool({
  name: 'vault_search',
  title: 'Search the shared notes',
  description:
    'Lines of notes that hold the words (or match the regular expression). Do not use it for files of a workspace (exec with grep).',
  actions: ['searchNotes'],
  annotations: readOnly,
  input: z.strictObject({
    query: z.string().min(1).max(1024).describe('Words to find, or a regular expression.'),
    regex: z.boolean().default(false).describe('Take query as a regular expression.'),
    tag: noteTagSchema.optional().describe('Only notes with this tag.'),
    path_prefix: z.string().max(1024).optional().describe('Only notes below this folder.'),
    max_results: z.int().min(1).max(1000).default(20).describe('Lines at most.'),
  }),
  output: z.object({
    query: z.string(),
    result_count: z.number(),
    results: z.array(
      z.object({ path: z.string(), line_number: z.number(), line: z.string(), context: z.string() }),
    ),
    note: z.string().optional(),
  }),
  run: async (context, input) => {
    const { results, truncated } = await context.call('searchNotes', {
      query: {
        query: input.query,
        regex: input.regex ? 'true' : 'false',
        limit: input.max_results,
        ...(input.tag === undefined ? {} : { tag: input.tag }),
        ...(input.path_prefix === undefined ? {} : { folder: input.path_prefix }),
      },
    });
    const note = `[TRUNCATED: showing ${results.length} lines; raise max_results, or give path_prefix or tag]`;
    return { query: input.query, result_count: results.length, results, ...(truncated ? { note } : {}) };
  },
});

const list = defineTool({
  name: 'vault_list',
  title: 'List the shared notes',
  description: 'Notes and folders of the vault. Do not use it for directories of a workspace (file_list).',
  actions: ['listNotes'],
  annotations: readOnly,
  input: z.strictObject({
    path: z.string().max(1024).optional().describe('Folder; the top when left out.'),
    path_prefix: z.string().max(1024).optional().describe('The same as path.'),
    recursive: z.boolean().default(false).describe('Also what is in folders below.'),
  }),
  output: z.object({
    path: z.string(),
    recursive: z.boolean(),
    count: z.number(),
    entries: z.array(noteEntrySchema),
  }),
  next: { not_found: 'Call vault_list without path to see the folders there are.' },
  run: async (context, input) => {
    const path = input.path ?? input.path_prefix ?? '';
    const entries = await listNotes(context, path, input.recursive);
    return { path, recursive: input.recursive, count: entries.length, entries };
  },
});

const remove = defineTool({
  name: 'vault_delete',
  title: 'Delete a shared note',
  description:
    'Removes a note for good; confirm must be true. Do not use it on notes of others without asking.',
  actions: ['deleteNote'],
  annotations: replacing,
  input: z.strictObject({ path: notePath, confirm: z.literal(true).describe('Must be true.') }),
  output: z.object({ path: z.string(), deleted: z.literal(true) }),
  next,
  run: async (context, { path }) => {
    await context.call('deleteNote', { query: { path } });
    return { path, deleted: true as const };
  },
});

const frontmatter = defineTool({
  name: 'vault_frontmatter',
  title: 'Frontmatter of a shared note',
  description:
    'Reads, sets or deletes keys in the frontmatter of a note. Do not use it for tags (vault_tags).',
  actions: ['readNote', 'changeFrontmatter'],
  annotations: replacing,
  input: z.strictObject({
    path: notePath,
    action: z.enum(['get', 'set', 'delete']).default('get').describe('What to do with the key.'),
    key: z
      .string()
      .regex(/^[A-Za-z0-9_][A-Za-z0-9_ .-]{0,63}$/)
      .optional()
      .describe('Name of the key; all of them for get when left out.'),
    value: noteValueSchema.optional().describe('For set.'),
  }),
  output: z.object({ path: z.string(), frontmatter: frontmatterSchema }),
  next,
  run: async (context, { path, action, key, value }) => {
    if (action === 'get') {
      const { frontmatter: all = {} } = await context.call('readNote', { query: { path, format: 'json' } });
      return { path, frontmatter: key === undefined ? all : { [key]: all[key] ?? null } };
    }
    if (key === undefined || (action === 'set' && value === undefined))
      throw new CoppiceError(
        'invalid_argument',
        `${action} needs key${action === 'set' ? ' and value' : ''}`,
      );
    const change = value !== undefined && action === 'set' ? { set: { [key]: value } } : { delete: [key] };
    const { frontmatter: after } = await context.call('changeFrontmatter', { body: { path, ...change } });
    return { path, frontmatter: after };
  },
});

const tags = defineTool({
  name: 'vault_tags',
  title: 'Tags of a shared note',
  description:
    'Lists, adds or removes tags of a note; without path lists all tags in use. Do not use it to search (vault_search takes a tag).',
  actions: ['listNoteTags', 'changeFrontmatter'],
  annotations: replacing,
  input: z.strictObject({
    path: notePath.optional().describe('Path of a note; all notes when left out.'),
    action: z.enum(['list', 'add', 'remove']).default('list').describe('What to do.'),
    tag: noteTagSchema.optional().describe('For add and remove.'),
  }),
  output: z.object({ path: z.string().nullable(), tags: z.array(z.string()) }),
  next,
  run: async (context, { path, action, tag }) => {
    if (action === 'list') {
      const found = await context.call('listNoteTags', { query: path === undefined ? {} : { path } });
      return { path: path ?? null, tags: found.tags };
    }
    if (path === undefined) throw new CoppiceError('invalid_argument', `${action} needs path`);
    if (tag === undefined) throw new CoppiceError('invalid_argument', `${action} needs tag`);
    const change = action === 'add' ? { add_tags: [tag] } : { remove_tags: [tag] };
    const { tags: after } = await context.call('changeFrontmatter', { body: { path, ...change } });
    return { path, tags: after };
  },
});

const replace = defineTool({
  name: 'vault_replace',
  title: 'Replace text in a shared note',
  description:
    'Replaces every occurrence of a text (or match of a regular expression) in a note. Do not use it to rewrite a note (vault_write).',
  actions: ['replaceInNote'],
  annotations: unbounded,
  input: z.strictObject({
    path: notePath,
    search: z.string().min(1).max(65_536).describe('Text to find.'),
    replace: z.string().max(1_048_576).describe('What takes its place.'),
    regex: z.boolean().default(false).describe('Take search as a regular expression.'),
  }),
  output: z.object({ path: z.string(), replacements: z.number() }),
  next: { ...next, no_match: 'Call vault_read, and quote the text exactly.' },
  run: (context, body) => context.call('replaceInNote', { body }),
});

const move = defineTool({
  name: 'vault_move',
  title: 'Move a shared note',
  description: 'Gives a note another path. Do not use it to copy (vault_read, then vault_write).',
  actions: ['moveNote'],
  annotations: unbounded,
  input: z.strictObject({
    path: notePath,
    new_path: notePath.describe('Where to.'),
    overwrite: z.boolean().default(false).describe('Replace a note that is there.'),
  }),
  output: z.object({ moved: z.literal(true), from: z.string(), to: z.string() }),
  next,
  run: async (context, { path, new_path: to, overwrite }) => {
    await context.call('moveNote', { body: { from: path, to, overwrite } });
    return { moved: true as const, from: path, to };
  },
});

const batchRead = defineTool({
  name: 'vault_batch_read',
  title: 'Read several shared notes',
  description:
    'Up to ten notes in one call; one that cannot be read says why and does not stop the others. Do not use it to find notes (vault_search).',
  actions: ['readNote'],
  annotations: readOnly,
  input: z.strictObject({
    paths: z.array(notePath).min(1).max(10).describe('Paths of notes.'),
    include_content: z.boolean().default(true).describe('Answer with the text.'),
    include_frontmatter: z.boolean().default(true).describe('Answer with the frontmatter.'),
  }),
  output: z.object({
    notes: z.array(
      z.object({
        path: z.string(),
        content: z.string().optional(),
        frontmatter: frontmatterSchema.optional(),
        error: z.string().optional(),
      }),
    ),
  }),
  run: async (context, input) => ({
    notes: await Promise.all(
      input.paths.map(async (path) => {
        try {
          const note = await context.call('readNote', { query: { path, format: 'json' } });
          return {
            path,
            ...(input.include_content ? { content: note.content } : {}),
            ...(input.include_frontmatter ? { frontmatter: note.frontmatter ?? {} } : {}),
          };
        } catch (error) {
          if (!(error instanceof CoppiceError)) throw error;
          return { path, error: error.message };
        }
      }),
    ),
  }),
});

const stats = defineTool({
  name: 'vault_stats',
  title: 'Size of the vault',
  description:
    'How many notes and folders there are, and which changed last. Do not use it to list notes (vault_list).',
  actions: ['listNotes'],
  annotations: readOnly,
  input: z.strictObject({
    recent_count: z.int().min(0).max(100).default(10).describe('Notes that changed last.'),
  }),
  output: z.object({
    total_notes: z.number(),
    total_folders: z.number(),
    total_size_bytes: z.number(),
    recent_files: z.array(z.object({ path: z.string(), size: z.number(), modified: z.string() })),
  }),
  run: async (context, { recent_count: count }) => {
    const entries = await listNotes(context, '', true);
    const files = entries.filter((entry) => !entry.is_dir);
    const recent = files.toSorted((a, b) => (a.modified < b.modified ? 1 : -1)).slice(0, count);
    return {
      total_notes: files.length,
      total_folders: entries.length - files.length,
      total_size_bytes: files.reduce((sum, file) => sum + file.size, 0),
      recent_files: recent.map(({ path, size, modified }) => ({ path, size, modified })),
    };
  },
});

export const vaultTools: readonly Tool[] = [
  read,
  write,
  search,
  list,
  remove,
  frontmatter,
  tags,
  replace,
  move,
  batchRead,
  stats,
];
