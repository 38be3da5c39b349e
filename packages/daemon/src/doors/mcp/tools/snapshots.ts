import { nameSchema, type Snapshot, snapshotRefSchema } from '@coppice/protocol';
import { z } from 'zod';
import { workspaceId } from '../fields.ts';
import { additive, defineTool, readOnly, replacing, type Tool } from '../tool.ts';
import type { ToolContext } from '../tool-context.ts';
import { changesOf, changesSchema, summarySchema } from './trees.ts';

const snapshotName = snapshotRefSchema.describe('Name (or id) of a snapshot of this workspace.');
const unknownSnapshot = {
  not_found: 'Call snapshot_list to see the snapshots, or workspace_list for the workspaces.',
};

const create = defineTool({
  name: 'snapshot_create',
  title: 'Save a snapshot',
  description:
    'Saves the whole disk under a name, at once and while it runs. Use it before anything risky and after expensive set-up. Do not use it to copy one file (exec with cp).',
  actions: ['createSnapshot'],
  annotations: additive,
  input: z.strictObject({
    workspace_id: workspaceId,
    name: nameSchema.describe('Says what it holds: after-npm-install.'),
    include_memory: z
      .boolean()
      .default(false)
      .describe('Also the memory of all processes, where the driver can.'),
  }),
  output: z.object({
    snapshot_id: z.string(),
    name: z.string(),
    workspace_id: z.string(),
    has_memory: z.boolean(),
    created_at: z.string(),
  }),
  next: {
    name_taken: 'Choose another name, or delete the old one with snapshot_delete.',
    unsupported: 'Call snapshot_create again with include_memory: false to keep the disk.',
  },
  run: async (context, input) => {
    const { id, name } = await context.ownSandbox(input.workspace_id);
    const snapshot = await context.during(`saving ${name}`, () =>
      context.call('createSnapshot', {
        params: { sandbox: id },
        body: { name: input.name, memory: input.include_memory },
      }),
    );
    return {
      snapshot_id: snapshot.id,
      name: snapshot.name,
      workspace_id: id,
      has_memory: snapshot.has_memory,
      created_at: snapshot.created_at,
    };
  },
});

const restore = defineTool({
  name: 'snapshot_restore',
  title: 'Roll back to a snapshot',
  description:
    'Puts the disk back exactly as it was at the snapshot; processes end, or go on from there if it has memory. The files as they are now are kept first, as undo_snapshot_id. All other snapshots stay. Do not use it to look at old files: workspace_fork.',
  actions: ['restoreSandbox'],
  annotations: replacing,
  input: z.strictObject({
    workspace_id: workspaceId,
    snapshot_name: snapshotName,
    discard: z.boolean().default(false).describe('Keep no undo.'),
  }),
  output: z.object({
    workspace_id: z.string(),
    snapshot_id: z.string(),
    snapshot_name: z.string(),
    state: z.string(),
    with_memory: z.boolean(),
    undo_snapshot_id: z.string().nullable().describe('Restore this to have the files back as they were.'),
  }),
  next: unknownSnapshot,
  run: async (context, { workspace_id: ref, snapshot_name: name, discard }) => {
    const sandbox = await context.ownSandbox(ref);
    const { id } = sandbox;
    const snapshot = await context.usableSnapshot(name, sandbox);
    const restored = await context.during(`restoring ${snapshot.name}`, () =>
      context.call('restoreSandbox', { params: { sandbox: id }, body: { snapshot: snapshot.id, discard } }),
    );
    return {
      workspace_id: id,
      snapshot_id: snapshot.id,
      snapshot_name: snapshot.name,
      state: restored.state,
      with_memory: restored.with_memory,
      undo_snapshot_id: restored.undo_snapshot_id,
    };
  },
});

/** Sizes are counted in the background, soon after a snapshot is taken. */
const withSizes = async (context: ToolContext, id: string): Promise<Snapshot[]> => {
  const deadlineMs = performance.now() + 15_000;
  for (;;) {
    const { items: snapshots } = await context.call('listSandboxSnapshots', { params: { sandbox: id } });
    const counted = snapshots.every((snapshot) => snapshot.used_bytes !== null);
    if (counted || performance.now() > deadlineMs || context.signal.aborted) return snapshots;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
};

const list = defineTool({
  name: 'snapshot_list',
  title: 'List snapshots',
  description:
    'Snapshots of a workspace: used_bytes would be freed by deleting one, referenced_bytes is all it refers to. Do not use it to see what changed (file_diff).',
  actions: ['listSandboxSnapshots'],
  annotations: readOnly,
  input: z.strictObject({ workspace_id: workspaceId }),
  output: z.object({
    snapshots: z.array(
      z.object({
        id: z.string(),
        name: z.string(),
        automatic: z.boolean().describe('Taken for a fork, a merge or an undo; goes by itself.'),
        has_memory: z.boolean(),
        parent: z.string().nullable(),
        created_at: z.string(),
        used_bytes: z.number().nullable().describe('Null while it is still being counted.'),
        referenced_bytes: z.number().nullable(),
      }),
    ),
  }),
  run: async (context, { workspace_id: ref }) => {
    const { id } = await context.look(ref);
    const snapshots = await withSizes(context, id);
    return {
      snapshots: snapshots.map((snapshot) => ({
        id: snapshot.id,
        name: snapshot.name,
        automatic: snapshot.automatic,
        has_memory: snapshot.has_memory,
        parent: snapshot.parent_id,
        created_at: snapshot.created_at,
        used_bytes: snapshot.used_bytes,
        referenced_bytes: snapshot.referenced_bytes,
      })),
    };
  },
});

const remove = defineTool({
  name: 'snapshot_delete',
  title: 'Delete a snapshot',
  description:
    'Removes a snapshot for good and frees its used_bytes. A snapshot that forks grew from cannot be deleted while they exist. Do not use it on a snapshot you may want to roll back to.',
  actions: ['deleteSnapshot'],
  annotations: replacing,
  input: z.strictObject({ workspace_id: workspaceId, snapshot_name: snapshotName }),
  output: z.object({ workspace_id: z.string(), snapshot_name: z.string(), status: z.literal('deleted') }),
  next: {
    ...unknownSnapshot,
    in_use: 'Destroy the forks that the message names with workspace_destroy first.',
  },
  run: async (context, { workspace_id: ref, snapshot_name: name }) => {
    const sandbox = await context.ownSandbox(ref);
    const snapshot = await context.ownSnapshot(name, sandbox);
    await context.call('deleteSnapshot', { params: { snapshot: snapshot.id } });
    return { workspace_id: sandbox.id, snapshot_name: snapshot.name, status: 'deleted' as const };
  },
});

const diff = defineTool({
  name: 'snapshot_diff',
  title: 'What changed since a snapshot',
  description:
    'Files that were added, removed or modified between a snapshot and now (or a second snapshot). Do not use it for the lines that changed in a repository (git_diff).',
  actions: ['diff'],
  annotations: readOnly,
  input: z.strictObject({
    workspace_id: workspaceId,
    snapshot_name: snapshotName,
    to_snapshot: snapshotName.optional().describe('Compare with this snapshot instead of with now.'),
    limit: z.int().min(1).max(10_000).default(1000).describe('Changes at most.'),
  }),
  output: z.object({
    workspace_id: z.string(),
    snapshot_name: z.string(),
    changes: changesSchema,
    summary: summarySchema,
    truncated: z.boolean(),
    note: z.string().optional(),
  }),
  next: unknownSnapshot,
  run: async (context, input) => {
    const sandbox = await context.ownSandbox(input.workspace_id);
    const { id } = sandbox;
    const from = await context.usableSnapshot(input.snapshot_name, sandbox);
    const to =
      input.to_snapshot === undefined ? id : (await context.usableSnapshot(input.to_snapshot, sandbox)).id;
    const found = await context.during('comparing', () =>
      context.call('diff', { query: { from: from.id, to, limit: input.limit } }),
    );
    return {
      workspace_id: id,
      snapshot_name: from.name,
      changes: changesOf(found),
      summary: found.summary,
      truncated: found.truncated,
      ...(found.truncated
        ? {
            note: `[TRUNCATED: showing ${found.changes.length} changes; summary counts all, raise limit to see more]`,
          }
        : {}),
    };
  },
});

export const snapshotTools: readonly Tool[] = [create, restore, list, remove, diff];
