import { z } from 'zod';
import { workDirectory } from './mount-text.ts';
import { guestPathSchema } from './processes.ts';
import { sandboxRefSchema } from './references.ts';
import { flag } from './route-parts.ts';

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

/** Git would take a word that begins with `-` for an option. */
const notAnOption = (text: string): boolean => !text.startsWith('-') && !text.includes('\0');
/** Other protocols have no use for a password, and it would stay in the remote of the clone. */
const hasNoUselessPassword = (text: string): boolean =>
  /^https?:/.test(text) || (URL.parse(text)?.password ?? '') === '';
const gitWord = z
  .string()
  .min(1)
  .max(1024)
  .refine(notAnOption, 'must not start with `-`')
  .refine(hasNoUselessPassword, 'must not hold a password: only https and http take one');
/** Git itself has no name with `..` in it. */
const gitName = gitWord.refine((name) => !name.includes('..'), 'must not hold `..`');
const timeoutMs = z.int().min(100).max(86_400_000);

/** Where to clone from. A password in it is used once and stored nowhere. */
export const gitUrlSchema = gitWord.refine(
  (url) =>
    /^(https?|git|ssh|file):\/\/\S+$/.test(url) || /^[\w.-]+@[\w.-]+:\S+$/.test(url) || url.startsWith('/'),
  'must be an https, http, git, ssh or file URL, host:path, or an absolute path',
);

export const gitCloneSchema = z.strictObject({
  url: gitUrlSchema,
  /** Directory to clone into. */
  path: repository,
  branch: gitName.optional(),
  /** Only that many of the newest commits. */
  depth: z.int().min(1).optional(),
  timeout_ms: timeoutMs.default(300_000),
});

export const gitClonedSchema = z.object({
  path: z.string(),
  /** Null where the repository is empty. */
  commit_sha: z.string().nullable(),
  /** Without credentials. */
  url: z.string(),
  /** Null where HEAD is on no branch. */
  branch: z.string().nullable(),
});
export type GitCloned = z.infer<typeof gitClonedSchema>;

export const gitCommitSchema = z.strictObject({
  path: repository,
  message: z.string().min(1).max(65_536),
  /** Commit every change; otherwise only what is staged. */
  all: z.boolean().default(true),
  author_name: z.string().min(1).max(256).optional(),
  author_email: z.string().min(1).max(256).optional(),
});

export const gitCommittedSchema = z.object({
  path: z.string(),
  /** Null where there was nothing to commit. */
  commit: z
    .object({ sha: z.string(), short_sha: z.string(), branch: z.string().nullable(), summary: z.string() })
    .nullable(),
});
export type GitCommitted = z.infer<typeof gitCommittedSchema>;

export const gitPushSchema = z.strictObject({
  path: repository,
  remote: gitName.default('origin'),
  /** The current one where it is left out. */
  branch: gitName.optional(),
  /** Replaces what the remote has, commits of others included. */
  force: z.boolean().default(false),
  set_upstream: z.boolean().default(false),
  timeout_ms: timeoutMs.default(120_000),
});

export const gitPushedSchema = z.object({
  /** Without credentials. */
  remote: z.string(),
  branch: z.string(),
  /** What git printed. */
  output: z.string(),
});
export type GitPushed = z.infer<typeof gitPushedSchema>;

export const gitDiffQuery = z.strictObject({
  path: repository,
  /** What is staged, instead of what is not. */
  staged: flag.default(false),
  /** Only the statistics. */
  stat: flag.default(false),
  /** Only this file: relative to the repository, or absolute. */
  file: z.string().min(1).max(4096).optional(),
  max_bytes: z.coerce.number().int().min(1).max(4_194_304).default(65_536),
});

export const gitDiffSchema = z.object({
  diff: z.string(),
  /** There is more than `max_bytes`. */
  truncated: z.boolean(),
  stat: z.string(),
});
export type GitDiff = z.infer<typeof gitDiffSchema>;

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
