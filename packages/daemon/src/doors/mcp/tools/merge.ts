import { type MergedCommits, mergeStrategies } from '@coppice/protocol';
import { z } from 'zod';
import { repositoryPath, workspaceId } from '../fields.ts';
import { defineTool, type Tool, unbounded } from '../tool.ts';

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

/** A merge as agents know it. */
export const mergeView = ({
  success,
  strategy,
  commits,
  sources,
  conflicts,
}: MergedCommits): z.infer<typeof mergeOutput> => ({
  success,
  strategy,
  total_commits_applied: commits,
  merged_sources: sources.map(({ sandbox_id: source_id, ...source }) => ({ source_id, ...source })),
  conflicts: conflicts.map(({ sandbox_id: source_id, ...conflict }) => ({ source_id, ...conflict })),
});

const merge = defineTool({
  name: 'workspace_merge',
  title: 'Merge the commits of workspaces',
  description:
    'Brings what was committed in forks, from where they left the target’s history on, into the target’s repository. Conflicts are listed and leave the target as it was. It can be repeated, and go the other way. Do not use it for changes that are not committed (git_commit first), nor for files outside a git repository (file_merge).',
  actions: ['mergeCommits'],
  annotations: unbounded,
  input: z.strictObject({
    source_workspaces: z
      .array(workspaceId)
      .min(1)
      .max(20)
      .describe('Workspaces whose commits are brought in.'),
    target_workspace: workspaceId.describe('Workspace that gets them.'),
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
    wrong_state: 'Commit what has changed in the target with git_commit, then merge again.',
    conflict:
      'Look at both sides with git_diff and workspace_git_status, settle them with file_edit and git_commit, then merge again.',
  },
  run: async (context, input) => {
    const target = await context.ownSandbox(input.target_workspace);
    const sources = await Promise.all(input.source_workspaces.map((ref) => context.ownSandbox(ref)));
    const body = {
      from: sources.map(({ id }) => id),
      strategy: input.strategy,
      path: input.path,
      message: input.commit_message,
    };
    const merged = await context.during('merging', () =>
      context.call(
        'mergeCommits',
        { params: { sandbox: target.id }, body },
        { progress: ({ message, fraction }) => context.report(message, fraction) },
      ),
    );
    return mergeView(merged);
  },
});

export const mergeTools: readonly Tool[] = [merge];
