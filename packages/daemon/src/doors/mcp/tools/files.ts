import { CoppiceError, editFileSchema, writeFileQuery } from '@coppice/protocol';
import type { ContentBlock } from '@modelcontextprotocol/server';
import { z } from 'zod';
import { guestPath } from '../../../inside/shell-command.ts';
import { filePath, workDirectory, workspaceId } from '../fields.ts';
import { readGuestFile } from '../guest-file.ts';
import { defineTool, readOnly, replacing, type Tool, unbounded } from '../tool.ts';
import { fileForTransfer, fromHost, hostPath, toHost } from '../transfers.ts';

const mode = writeFileQuery.shape.mode.describe('Octal permissions, such as 0644 or 0755.');

const missingFile = 'Call file_list on the directory to see what is there.';

async function* single(bytes: Buffer): AsyncIterable<Buffer> {
  yield bytes;
}

/** Node leaves out what is no base64; here that is a mistake of the caller. */
const fromBase64 = (content: string): Buffer => {
  const packed = content.replace(/[\r\n]/g, '');
  if (packed.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(packed)) return Buffer.from(packed, 'base64');
  throw new CoppiceError('invalid_argument', 'content is not base64', {
    hint: 'Nothing was written. Call file_write with standard base64, or without encoding for text.',
  });
};

const write = defineTool({
  name: 'file_write',
  title: 'Write a file',
  description:
    'Creates a file or replaces all of it; missing directories are made. Do not use it to change a few lines (file_edit).',
  actions: ['writeFile'],
  annotations: replacing,
  input: z.strictObject({
    workspace_id: workspaceId,
    path: filePath,
    content: z.string().max(33_554_432).describe('All of the file.'),
    mode,
    encoding: z.enum(['utf-8', 'base64']).default('utf-8').describe('base64 for binary content.'),
  }),
  output: z.object({ path: z.string(), bytes: z.number() }),
  run: async (context, input) => {
    const id = await context.own(input.workspace_id);
    const bytes = input.encoding === 'base64' ? fromBase64(input.content) : Buffer.from(input.content);
    const query = { path: guestPath(input.path), mode: input.mode };
    return context.call('writeFile', { params: { sandbox: id }, query }, { upload: single(bytes) });
  },
});

const readOutput = z.object({
  path: z.string(),
  content: z.string(),
  encoding: z.enum(['utf-8', 'base64']),
  mime_type: z.string(),
  size_bytes: z.number().nullable(),
  offset: z.number(),
  truncated: z.boolean(),
  next_offset: z.number().optional().describe('Where the rest starts, if there is more.'),
});

const readContent = (file: z.input<typeof readOutput>): ContentBlock[] => {
  const rest = file.truncated
    ? `[TRUNCATED: ${file.size_bytes ?? 'unknown'} bytes total; read on with offset=${file.next_offset}]`
    : '';
  if (file.encoding === 'utf-8')
    return [
      { type: 'text', text: file.content },
      ...(rest === '' ? [] : [{ type: 'text' as const, text: rest }]),
    ];
  const about = `${file.path} is binary (${file.mime_type}, ${file.size_bytes ?? 'unknown'} bytes); its bytes follow in base64. ${rest}`;
  const isWholeImage = file.mime_type.startsWith('image/') && file.offset === 0 && !file.truncated;
  return [
    { type: 'text', text: about.trimEnd() },
    isWholeImage
      ? { type: 'image', data: file.content, mimeType: file.mime_type }
      : {
          type: 'resource',
          resource: { uri: `file://${file.path}`, mimeType: file.mime_type, blob: file.content },
        },
  ];
};

const read = defineTool({
  name: 'file_read',
  title: 'Read a file',
  description:
    'Content of a file: text as it is, anything else as base64 with its mime type. A long file comes in parts: read on with offset. Do not use it to list a directory (file_list).',
  actions: ['readFile', 'statFile'],
  annotations: readOnly,
  input: z.strictObject({
    workspace_id: workspaceId,
    path: filePath,
    offset: z.int().min(0).default(0).describe('First byte to read.'),
    limit: z.int().min(1).max(16_777_216).optional().describe('Bytes at most. Default: about 8000 tokens.'),
  }),
  output: readOutput,
  content: readContent,
  next: { not_found: missingFile },
  run: async (context, input) => {
    const id = await context.own(input.workspace_id);
    const path = guestPath(input.path);
    const file = await readGuestFile(context, id, path, { offset: input.offset, limit: input.limit });
    return {
      path,
      content: file.content,
      encoding: file.encoding,
      mime_type: file.mimeType,
      size_bytes: file.sizeBytes,
      offset: input.offset,
      truncated: file.truncated,
      ...(file.truncated ? { next_offset: input.offset + file.bytes } : {}),
    };
  },
});

const edited = editFileSchema.shape;

const edit = defineTool({
  name: 'file_edit',
  title: 'Replace text in a file',
  description:
    'Replaces old_string, which must be in the file exactly once unless replace_all is true; otherwise nothing is written. Do not use it without file_read first, nor to create a file (file_write).',
  actions: ['editFile'],
  annotations: unbounded,
  input: z.strictObject({
    workspace_id: workspaceId,
    path: filePath,
    old_string: edited.old_string.describe('The exact text, with enough around it to be unique.'),
    new_string: edited.new_string.describe('What takes its place.'),
    replace_all: edited.replace_all.describe('Replace every occurrence.'),
  }),
  output: z.object({ path: z.string(), replacements: z.number(), bytes: z.number() }),
  next: {
    not_found: missingFile,
    ambiguous: 'Quote more of the lines around it in old_string, or pass replace_all: true.',
  },
  run: async (context, { workspace_id: ref, ...input }) => {
    const id = await context.own(ref);
    const body = { ...input, path: guestPath(input.path) };
    return context.call('editFile', { params: { sandbox: id }, body });
  },
});

const list = defineTool({
  name: 'file_list',
  title: 'List a directory',
  description:
    'Entries of a directory with kind, size, permissions and time of change. Do not use it to find text (exec with grep).',
  actions: ['listFiles'],
  annotations: readOnly,
  input: z.strictObject({
    workspace_id: workspaceId,
    path: filePath.default(workDirectory),
    depth: z.int().min(1).max(64).default(1).describe('How many levels down.'),
    limit: z.int().min(1).max(10_000).default(1000).describe('Entries at most.'),
  }),
  output: z.object({
    path: z.string(),
    entries: z.array(
      z.object({
        name: z.string().describe('Relative to the directory that was listed.'),
        kind: z.string().describe('file, directory, symlink …'),
        size: z.number(),
        permissions: z.string(),
        modified: z.string(),
        target: z.string().optional(),
      }),
    ),
    truncated: z.boolean(),
    note: z.string().optional(),
  }),
  next: { not_found: 'Call file_list on the directory above to see what is there.' },
  run: async (context, input) => {
    const id = await context.own(input.workspace_id);
    const path = guestPath(input.path);
    const query = { path, depth: input.depth, limit: input.limit };
    const { entries, truncated } = await context.call('listFiles', { params: { sandbox: id }, query });
    const base = path.endsWith('/') ? path : `${path}/`;
    return {
      path,
      truncated,
      ...(truncated
        ? { note: `[TRUNCATED: showing ${entries.length} entries; raise limit, or list a directory below]` }
        : {}),
      entries: entries.map((entry) => ({
        name: entry.path.startsWith(base) ? entry.path.slice(base.length) : entry.name,
        kind: entry.kind,
        size: entry.size_bytes,
        permissions: entry.mode,
        modified: entry.modified_at,
        ...(entry.target === null ? {} : { target: entry.target }),
      })),
    };
  },
});

const transferOutput = z.object({
  workspace_id: z.string(),
  host_path: z.string(),
  guest_path: z.string(),
  bytes: z.number(),
});

const upload = defineTool({
  name: 'file_upload',
  title: 'Copy a host file into the workspace',
  description:
    'Copies a file from the transfer directory of the host into the workspace. Host paths elsewhere, and symbolic links, are refused. Do not use it for content that you have at hand (file_write).',
  actions: ['transferFiles', 'writeFile'],
  annotations: replacing,
  input: z.strictObject({ workspace_id: workspaceId, host_path: hostPath, guest_path: filePath }),
  output: transferOutput,
  next: { not_found: `${fileForTransfer}; for a file of the workspace call file_list.` },
  run: async (context, input) => {
    const id = await context.own(input.workspace_id);
    const query = { path: guestPath(input.guest_path) };
    const { path, bytes } = await context.during('copying', () =>
      fromHost(context, input.host_path, (source) =>
        context.call('writeFile', { params: { sandbox: id }, query }, { upload: source }),
      ),
    );
    return { workspace_id: id, host_path: input.host_path, guest_path: path, bytes };
  },
});

const download = defineTool({
  name: 'file_download',
  title: 'Copy a workspace file to the host',
  description:
    'Copies a file of the workspace into the transfer directory of the host; a file that is there is replaced. Host paths elsewhere, and symbolic links, are refused. Do not use it to read a file (file_read).',
  actions: ['transferFiles', 'readFile'],
  annotations: replacing,
  input: z.strictObject({ workspace_id: workspaceId, host_path: hostPath, guest_path: filePath }),
  output: transferOutput,
  next: { not_found: missingFile },
  run: async (context, input) => {
    const id = await context.own(input.workspace_id);
    const path = guestPath(input.guest_path);
    const { bytes: source } = await context.call('readFile', { params: { sandbox: id }, query: { path } });
    const { bytes } = await context.during('copying', () => toHost(context, input.host_path, source));
    return { workspace_id: id, host_path: input.host_path, guest_path: path, bytes };
  },
});

export const fileTools: readonly Tool[] = [write, read, edit, list, upload, download];
