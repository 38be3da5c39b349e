import { z } from 'zod';
import { branchNameSchema, commitShaSchema, mergeMethods, ticketTypes } from './forge.ts';
import { refSchema } from './ids.ts';
import { imageRefSchema } from './images.ts';
import { list } from './route-parts.ts';
import { startRunSchema } from './runs.ts';
import { networkPolicySchema } from './sandboxes.ts';

const ticketSchema = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, 'must be the number or name of a ticket')
  .refine((id) => !id.includes('..') && !id.endsWith('.'), 'must be the number or name of a ticket');

export const branchStates = ['starting', 'started', 'in_review', 'needs_review', 'merged'] as const;

/** What the agent is to do on the branch; a run of its own is started for it. */
const workSchema = startRunSchema.pick({
  task: true,
  agent: true,
  command: true,
  model: true,
  env: true,
  timeout_s: true,
  steps: true,
  step_memory: true,
});

export const startBranchSchema = z.strictObject({
  repository: refSchema,
  ticket: ticketSchema,
  /** Needed where the forge has no issue of that name. */
  title: z.string().trim().min(1).max(256).optional(),
  type: z.enum(ticketTypes).optional(),
  critical: z.boolean().optional(),
  /** Where it starts and where it is to go; the default branch unless told otherwise. */
  base: branchNameSchema.optional(),
  image: imageRefSchema.optional(),
  network: networkPolicySchema.optional(),
  /** Starts an agent; its branch is finished when it is done. */
  run: workSchema.optional(),
});
export type StartBranch = z.output<typeof startBranchSchema>;

/** The branch by its name, or by the ticket whose newest it is. */
const branchRef = { repository: refSchema, branch: z.union([branchNameSchema, ticketSchema]) };

export const finishBranchSchema = z.strictObject({
  ...branchRef,
  /** Of the commit for what is not committed yet; the title of the ticket unless told otherwise. */
  message: z.string().trim().min(1).max(65_536).optional(),
});

export const mergeBranchSchema = z.strictObject({
  ...branchRef,
  method: z.enum(mergeMethods).default('squash'),
  /** Only if the head of the pull request is this; what `finish` brought there unless told otherwise. */
  expected_head: commitShaSchema.optional(),
  /** Leave its sandbox where it is. */
  keep_sandbox: z.boolean().default(false),
});

export const branchQuery = z.strictObject(branchRef);
export const listBranchesQuery = z.strictObject({ repository: refSchema.optional() });

export const branchSchema = z.object({
  /** Of a merge: whether it is merged. Of everything else true. */
  success: z.boolean(),
  repository: z.string(),
  branch_name: z.string(),
  ticket: z.string(),
  title: z.string(),
  /** `needs_review`: the commits are on the branch, and the pull request could not be opened. */
  state: z.enum(branchStates),
  base: z.string(),
  /** The last commit of the branch that the forge has; null when the branch is gone. */
  sha: z.string().nullable(),
  ahead_by: z.number(),
  behind_by: z.number(),
  sandbox_id: z.string().nullable(),
  run_id: z.string().nullable(),
  pr_number: z.number().nullable(),
  pr_url: z.string().nullable(),
  has_conflicts: z.boolean(),
  /** `none` is not `success`: nobody has checked anything. */
  checks: z.enum(['none', 'pending', 'failure', 'success']),
  reviews: z.enum(['none', 'approved', 'changes_requested']),
  merge_sha: z.string().nullable(),
  /** Why the last attempt at something failed. */
  error: z.string().nullable(),
});
export type Branch = z.infer<typeof branchSchema>;

const shared = { tag: 'branches', scope: 'admin', answer: 'json', result: branchSchema } as const;

/** From a ticket to a merge. */
export const branchRoutes = {
  startBranch: {
    ...shared,
    method: 'POST',
    path: '/v1/branches/start',
    summary:
      'Create the branch of a ticket and a sandbox with it checked out; start an agent there if asked. Safe to repeat',
    body: startBranchSchema,
    bodyBytes: 4_194_304,
  },
  finishBranch: {
    ...shared,
    method: 'POST',
    path: '/v1/branches/finish',
    summary: 'Push the commits of the sandbox to the forge and open a pull request. Safe to repeat',
    body: finishBranchSchema,
    bodyBytes: 524_288,
  },
  mergeBranch: {
    ...shared,
    method: 'POST',
    path: '/v1/branches/merge',
    summary:
      'Merge the pull request, then remove the branch and its sandbox. Conflicts are reported, never forced',
    body: mergeBranchSchema,
  },
  branchStatus: {
    ...shared,
    method: 'GET',
    path: '/v1/branches/status',
    summary: 'Show the state of a branch',
    query: branchQuery,
  },
  listBranches: {
    ...shared,
    method: 'GET',
    path: '/v1/branches',
    summary: 'List the branches of tickets, as last seen',
    query: listBranchesQuery,
    result: list(branchSchema),
  },
} as const;
