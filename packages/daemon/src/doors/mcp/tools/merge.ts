import { z } from 'zod';
import { repositoryPath, workspaceId } from '../fields.ts';
import {
  GitMerge,
  type MergeConflict,
  type MergedSource,
  type MergeStrategy,
  mergeStrategies,
} from '../git-merge.ts';
import { defineTool, type Tool, unbounded } from '../tool.ts';
import type { ToolContext } from '../tool-context.ts';

export const mergeStrategy = z
  .enum(mergeStrategies)
  .describe(
    'sequential: the commits of each source are replayed in order, a source with conflicts is left out whole; branch-per-source: each source becomes a branch merge/<name> and is merged by a merge commit; cherry-pick: commit by commit, those in conflict are left out.',
  );

export const mergeOutput = z.object({
  success: z.boolean().describe('True when there were no conflicts.'),
  strategy: z.string(),
  total_commits_applied: z.number(),
  merged_sources: z.array(
    z.object({
      source_id: z.string(),
      name: z.string(),
      commits: z.number(),
      uncommitted_changes: z.boolean().describe('Changes there that were not committed did not come along.'),
    }),
  ),
  conflicts: z.array(z.object({ source_id: z.string(), error: z.string(), files: z.array(z.string()) })),
});

export const mergeWorkspaces = async (
  context: ToolContext,
  request: {
    readonly sources: readonly { id: string; name: string }[];
    readonly target: { id: string; name: string };
    readonly strategy: MergeStrategy;
    readonly path: string;
    readonly message?: string | undefined;
  },
): Promise<z.infer<typeof mergeOutput>> => {
  const { path, strategy, message } = request;
  const merge = new GitMerge(context, { ...request.target, path });
  await merge.assertReady();
  const merged: MergedSource[] = [];
  const conflicts: MergeConflict[] = [];
  for (const [index, source] of request.sources.entries()) {
    context.signal.throwIfAborted();
    context.report(`merging ${source.name}`, index / request.sources.length);
    const outcome = await merge.bringIn({ ...source, path }, strategy, message);
    if (outcome.merged !== undefined) merged.push(outcome.merged);
    conflicts.push(...outcome.conflicts);
  }
  return {
    success: conflicts.length === 0,
    strategy,
    total_commits_applied: merged.reduce((sum, source) => sum + source.commits, 0),
    merged_sources: merged,
    conflicts,
  };
};

const merge = defineTool({
  name: 'workspace_merge',
  title: 'Merge the commits of workspaces',
  description:
    'Brings what was committed in forks, from where they left the target’s history on, into the target’s repository. Conflicts are listed and leave the target as it was. Do not use it for changes that are not committed (git_commit first), nor for files outside a git repository.',
  actions: ['merge', 'exec', 'readFile', 'writeFile', 'removeFile'],
  annotations: unbounded,
  input: z.strictObject({
    source_workspaces: z.array(workspaceId).min(1).max(20),
    target_workspace: workspaceId,
    strategy: mergeStrategy.default('sequential'),
    commit_message: z
      .string()
      .min(1)
      .max(65_536)
      .optional()
      .describe('Of merge commits (branch-per-source).'),
    path: repositoryPath,
  }),
  output: mergeOutput,
  next: {
    conflict:
      'Look at both sides with git_diff and workspace_git_status, settle them with file_edit and git_commit, then merge again.',
  },
  run: async (context, input) => {
    const target = context.ownSandbox(input.target_workspace);
    const sources = input.source_workspaces.map((ref) => context.ownSandbox(ref));
    return context.during('merging', () =>
      mergeWorkspaces(context, {
        sources: sources.map(({ id, name }) => ({ id, name })),
        target: { id: target.id, name: target.name },
        strategy: input.strategy,
        path: input.path,
        message: input.commit_message,
      }),
    );
  },
});

export const mergeTools: readonly Tool[] = [merge];
