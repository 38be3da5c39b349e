import { z } from 'zod';
import { guestPathSchema } from './processes.ts';
import { sandboxRefSchema } from './references.ts';

/** Where a repository is unless a call says otherwise; a relative path starts there too. */
export const workDirectory = '/workspace';
const repository = guestPathSchema.default(workDirectory);

export const gitStatusQuery = z.strictObject({
  /** Directory of the repository. */
  path: repository,
});

export const gitStatusSchema = z.object({
  /** Null when HEAD is on no branch. */
  branch: z.string().nullable(),
  ahead: z.number(),
  behind: z.number(),
  staged: z.array(z.string()),
  modified: z.array(z.string()),
  untracked: z.array(z.string()),
  conflicted: z.array(z.string()),
  dirty: z.boolean(),
});
export type GitStatus = z.infer<typeof gitStatusSchema>;

export const mergeStrategies = ['sequential', 'branch-per-source', 'cherry-pick'] as const;

export const mergeCommitsSchema = z.strictObject({
  /** The forks whose commits are brought in, one after the other. */
  from: z.array(sandboxRefSchema).min(1).max(20),
  /**
   * sequential: the commits of each fork are replayed in order, a fork with conflicts is left out whole; branch-per-source: each
   * fork becomes a branch `merge/<name>` and is merged by a merge commit; cherry-pick: commit by commit, those in conflict are
   * left out.
   */
  strategy: z.enum(mergeStrategies).default('sequential'),
  /** Of merge commits (branch-per-source). */
  message: z.string().min(1).max(65_536).optional(),
  /** Directory of the repository, the same in all sandboxes. */
  path: repository,
});

export const mergedCommitsSchema = z.object({
  /** True when there were no conflicts. */
  success: z.boolean(),
  strategy: z.enum(mergeStrategies),
  /** Commits that came in now; those that were there already do not count. */
  commits: z.number(),
  sources: z.array(
    z.object({
      sandbox_id: z.string(),
      name: z.string(),
      commits: z.number(),
      /** Changes there that were not committed did not come along. */
      uncommitted_changes: z.boolean(),
    }),
  ),
  conflicts: z.array(z.object({ sandbox_id: z.string(), error: z.string(), files: z.array(z.string()) })),
});
export type MergedCommits = z.infer<typeof mergedCommitsSchema>;
