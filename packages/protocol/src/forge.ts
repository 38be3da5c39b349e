import { z } from 'zod';
import { nameSchema, refSchema } from './ids.ts';

/** Where repositories are: here, or at somebody's whom an adapter speaks to. */
export const forgeKinds = ['builtin', 'github', 'gitlab', 'gitea'] as const;
export const mergeMethods = ['squash', 'merge', 'rebase'] as const;
export const ticketTypes = ['feature', 'bug', 'refactor', 'docs', 'test', 'chore'] as const;

const badBranch = /\.\.|\/\/|\/\.|@\{|\.lock(\/|$)|[./]$/;

/** A branch, without `refs/heads/`: of what git allows, what needs no quoting anywhere. */
export const branchNameSchema = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9._/@+-]{0,199}$/,
    'must be 1 to 200 letters, digits, `.`, `_`, `/`, `@`, `+` or `-`, starting with a letter or digit',
  )
  .refine((name) => !badBranch.test(name) && name !== 'HEAD', 'must be a name that git takes for a branch');

export const commitShaSchema = z.string().regex(/^[0-9a-f]{40}$/, 'must be the 40 digits of a commit');

export const forgeRepositorySchema = z.object({
  name: z.string(),
  kind: z.enum(forgeKinds),
  default_branch: z.string(),
  /** What `git clone` takes. */
  clone_url: z.string(),
  /** Of a forge elsewhere: where its API is, and the repository there. */
  url: z.string().nullable(),
  remote: z.string().nullable(),
  created_at: z.string(),
});
export type Repository = z.infer<typeof forgeRepositorySchema>;

/** As forges elsewhere name theirs: owner/name, with groups in between where a forge has them. */
const remoteSchema = z
  .string()
  .max(400)
  .regex(
    /^[A-Za-z0-9_][A-Za-z0-9_.-]*(\/[A-Za-z0-9_][A-Za-z0-9_.-]*){1,10}$/,
    'must be like owner/repository',
  )
  .refine((text) => !text.includes('..'), 'must hold no `..`');

const forgeUrlSchema = z
  .url({ protocol: /^https?$/ })
  .max(1000)
  .refine((text) => {
    // What is no URL at all was complained about already.
    if (!URL.canParse(text)) return true;
    const url = new URL(text);
    return url.username === '' && url.password === '' && url.search === '' && url.hash === '';
  }, 'must hold no login, query or fragment')
  .transform((text) => text.replace(/\/+$/, ''));

export const createRepositorySchema = z
  .strictObject({
    name: nameSchema,
    kind: z.enum(forgeKinds).default('builtin'),
    /** Of a repository here; `main` unless told otherwise. A forge elsewhere says its own. */
    default_branch: branchNameSchema.optional(),
    /** Of a forge elsewhere. */
    remote: remoteSchema.optional(),
    /** Where its API is, where that is not the vendor's own place. */
    url: forgeUrlSchema.optional(),
    /** Kept by the gateway alone; never shown, and never given to a sandbox. */
    token: z
      .string()
      .regex(/^[\x21-\x7e]{1,4096}$/, 'must be printable characters without spaces')
      .optional(),
  })
  .superRefine(({ kind, remote, url, token, default_branch }, context) => {
    const complain = (path: string, message: string) =>
      context.addIssue({ code: 'custom', path: [path], message });
    if (kind === 'builtin') {
      for (const [key, value] of Object.entries({ remote, url, token }))
        if (value !== undefined) complain(key, 'is for a forge elsewhere; this one is built in');
      return;
    }
    if (remote === undefined) complain('remote', `is needed: which repository of ${kind} it is`);
    if (token === undefined) complain('token', `is needed: what ${kind} knows you by`);
    if (default_branch !== undefined) complain('default_branch', `is what ${kind} says`);
    if (kind !== 'gitlab' && remote !== undefined && remote.split('/').length !== 2)
      complain('remote', 'must be like owner/repository');
    if (kind === 'gitea' && url === undefined) complain('url', 'is needed: where this forge is');
  });

export const issueSchema = z.object({
  /** As it is written after `#`. */
  id: z.string(),
  title: z.string(),
  body: z.string(),
  state: z.enum(['open', 'closed']),
  type: z.enum(ticketTypes),
  critical: z.boolean(),
  url: z.string(),
});
export type Issue = z.infer<typeof issueSchema>;

const titleSchema = z.string().trim().min(1).max(256);
const bodySchema = z.string().max(65_536);

export const createIssueSchema = z.strictObject({
  title: titleSchema,
  body: bodySchema.default(''),
  type: z.enum(ticketTypes).default('feature'),
  critical: z.boolean().default(false),
});
export const commentIssueSchema = z.strictObject({ body: bodySchema.min(1) });
export const commentSchema = z.object({ id: z.string(), body: z.string(), url: z.string() });
export type IssueComment = z.infer<typeof commentSchema>;

export const pullSchema = z.object({
  number: z.number(),
  title: z.string(),
  body: z.string(),
  state: z.enum(['open', 'closed', 'merged']),
  head: z.string(),
  head_sha: z.string(),
  base: z.string(),
  draft: z.boolean(),
  /** Null while the forge has not found out. */
  mergeable: z.boolean().nullable(),
  merge_sha: z.string().nullable(),
  url: z.string(),
});
export type Pull = z.infer<typeof pullSchema>;

export const createPullSchema = z.strictObject({
  head: branchNameSchema,
  base: branchNameSchema.optional(),
  title: titleSchema,
  body: bodySchema.default(''),
  draft: z.boolean().default(false),
});
export const listPullsQuery = z.strictObject({ state: z.enum(['open', 'all']).default('open') });

export const mergePullSchema = z.strictObject({
  /** Only if the head of the pull request is still this. */
  expected_head: commitShaSchema,
  method: z.enum(mergeMethods).default('squash'),
  message: z.string().max(65_536).optional(),
});
export const mergedPullSchema = z.object({ merge_sha: z.string() });

export const checkStates = ['pending', 'success', 'failure'] as const;
export const checkSchema = z.object({
  name: z.string(),
  state: z.enum(checkStates),
  description: z.string(),
  url: z.string().nullable(),
});
export type Check = z.infer<typeof checkSchema>;
export const reportCheckSchema = z.strictObject({
  sha: commitShaSchema,
  name: z.string().trim().min(1).max(100),
  state: z.enum(checkStates),
  description: z.string().max(140).default(''),
  url: z
    .url({ protocol: /^https?$/ })
    .max(1000)
    .optional(),
});

export const reviewStates = ['approved', 'changes_requested', 'commented'] as const;
export const reviewSchema = z.object({
  id: z.string(),
  author: z.string(),
  state: z.enum(reviewStates),
  body: z.string(),
  sha: z.string(),
});
export type Review = z.infer<typeof reviewSchema>;
export const createReviewSchema = z.strictObject({
  state: z.enum(reviewStates),
  body: bodySchema.default(''),
});

export const forgeDoctorSchema = z.object({
  ok: z.boolean(),
  steps: z.array(z.object({ step: z.string(), ok: z.boolean(), detail: z.string() })),
});
export type ForgeDoctor = z.infer<typeof forgeDoctorSchema>;

export const repositoryParams = z.strictObject({ repository: refSchema });
export const issueParams = z.strictObject({
  repository: refSchema,
  issue: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, 'must be the number or name of an issue'),
});
export const pullParams = z.strictObject({
  repository: refSchema,
  pull: z.coerce.number().int().min(1).max(4_294_967_295),
});
