import { CoppiceError, type Diff } from '@coppice/protocol';
import { z } from 'zod';
import { guestPath } from '../../../inside/shell-command.ts';
import { estimateTokens } from '../../../text/estimate-tokens.ts';
import { textTokens } from '../answer-size.ts';
import { filePath, workspaceId } from '../fields.ts';
import { defineTool, readOnly, type Tool, unbounded } from '../tool.ts';
import type { ToolContext } from '../tool-context.ts';

const treeRef = z.string().min(1).max(256);

/** A workspace of this session as it is now, or one of its snapshots as `workspace:snapshot`. */
const treeOf = async (context: ToolContext, ref: string): Promise<string> => {
  const colon = ref.indexOf(':');
  const sandbox = await context.ownSandbox(colon < 0 ? ref : ref.slice(0, colon));
  return colon < 0 ? sandbox.id : (await context.usableSnapshot(ref.slice(colon + 1), sandbox)).id;
};

export const changesSchema = z.array(
  z.object({
    path: z.string(),
    change: z.string().describe('added, removed, modified, or mode (permissions only)'),
    kind: z.string(),
    size_before: z.number().nullable(),
    size_after: z.number().nullable(),
  }),
);
export const summarySchema = z.object({
  added: z.number(),
  removed: z.number(),
  modified: z.number(),
  mode: z.number(),
});
export const changesOf = ({ changes }: Pick<Diff, 'changes'>): z.infer<typeof changesSchema> =>
  changes.map(({ path, change, kind, size_before, size_after }) => ({
    path,
    change,
    kind,
    size_before,
    size_after,
  }));

const mostChanges = 2_000;

const exclude = z
  .array(filePath)
  .max(100)
  .optional()
  .describe('Not these: absolute paths, or names such as node_modules or *.log.');

/** Changed lines of file after file, until an answer has enough of them. */
const patchOf = async (context: ToolContext, from: string, to: string, changes: Diff['changes']) => {
  let patch = '';
  let tokens = 0;
  const files = changes.filter(({ kind, change }) => kind === 'file' && change !== 'mode');
  for (const [index, { path }] of files.entries()) {
    const found = await context.call('diffFile', { query: { from, to, path } });
    const text = found.binary ? `Binary file ${path} differs\n` : found.unified;
    tokens += estimateTokens(text);
    if (tokens > textTokens * 0.7 && patch !== '')
      return `${patch}[TRUNCATED: ${files.length - index} more files; give path for one of them, or for a directory]\n`;
    patch += text;
  }
  return patch;
};

const diff = defineTool({
  name: 'file_diff',
  title: 'Compare the files of two workspaces',
  description:
    'Files that were added, removed or modified from one workspace or snapshot to another; with patch also the changed lines. Do not use it to see what is uncommitted in one repository (exec with git diff).',
  actions: ['diff', 'diffFile'],
  annotations: readOnly,
  input: z.strictObject({
    from: treeRef.describe('Workspace (id or name) as it is now, or workspace:snapshot.'),
    to: treeRef.describe('The same for the other side.'),
    path: filePath.optional().describe('Only this file or directory.'),
    exclude,
    patch: z.boolean().default(false).describe('Also the changed lines.'),
  }),
  output: z.object({
    changes: changesSchema,
    summary: summarySchema,
    patch: z.string().optional(),
    note: z.string().optional(),
  }),
  next: { not_found: 'Call workspace_list for the workspaces, and snapshot_list for the snapshots of one.' },
  run: (context, input) =>
    context.during('comparing', async () => {
      const from = await treeOf(context, input.from);
      const to = await treeOf(context, input.to);
      const path = input.path === undefined ? {} : { path: guestPath(input.path) };
      const query = { from, to, limit: mostChanges, exclude: input.exclude, ...path };
      const found = await context.call('diff', { query });
      return {
        changes: changesOf(found),
        summary: found.summary,
        ...(input.patch ? { patch: await patchOf(context, from, to, found.changes) } : {}),
        ...(found.truncated
          ? { note: `[TRUNCATED: the first ${mostChanges} changes; summary counts all, give path for fewer]` }
          : {}),
      };
    }),
});

const merge = defineTool({
  name: 'file_merge',
  title: 'Merge the files of a fork',
  description:
    'Brings what changed in one workspace since the two parted into the other. Repositories that both changed are merged by git: commits of both stay. Paths that both changed are conflicts: they are listed and nothing is written, unless prefer or choose says who wins. Do not use it only to look (file_diff).',
  actions: ['merge'],
  annotations: unbounded,
  input: z.strictObject({
    from: workspaceId.describe('Workspace whose changes are brought in.'),
    into: workspaceId.describe('Workspace that is changed.'),
    prefer: z
      .enum(['ours', 'theirs'])
      .optional()
      .describe('Who wins conflicts: ours is into, theirs is from.'),
    choose: z
      .record(z.string(), z.enum(['ours', 'theirs']))
      .optional()
      .describe('The same for single paths that are in conflict.'),
    path: z.array(filePath).max(100).optional().describe('Only these files and directories.'),
    exclude,
    dry_run: z.boolean().default(false).describe('Only say what would happen.'),
  }),
  output: z.object({
    applied: z.boolean(),
    repositories: z.array(z.object({ path: z.string(), commits: z.number() })).describe('Merged by git.'),
    left_out: z.array(z.string()).describe('Directories of the host that are mounted there: not merged.'),
    changes: changesSchema,
    summary: summarySchema,
    conflicts: z.array(z.object({ path: z.string(), ours: z.string(), theirs: z.string() })),
    undo_snapshot_id: z.string().nullable().describe('snapshot_restore this to undo the merge.'),
  }),
  next: {
    wrong_state: 'Commit there what is not committed, then call file_merge again.',
    conflict:
      'Look at the paths with file_diff, then call again with prefer, or edit one side with file_edit.',
  },
  run: (context, input) =>
    context.during('merging', async () => {
      const into = await context.ownSandbox(input.into);
      const from = await context.ownSandbox(input.from);
      if (into.id === from.id)
        throw new CoppiceError('invalid_argument', 'from and into are the same workspace');
      const merged = await context.call('merge', {
        params: { sandbox: into.id },
        body: {
          from: from.id,
          prefer: input.prefer,
          choose: input.choose,
          path: input.path?.map(guestPath),
          exclude: input.exclude,
          dry_run: input.dry_run,
        },
      });
      return {
        applied: merged.applied,
        repositories: merged.repositories,
        left_out: merged.left_out,
        changes: changesOf(merged),
        summary: merged.summary,
        conflicts: merged.conflicts,
        undo_snapshot_id: merged.undo_snapshot_id,
      };
    }),
});

export const treeTools: readonly Tool[] = [diff, merge];
