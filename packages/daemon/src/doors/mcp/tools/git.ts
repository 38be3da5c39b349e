import { CoppiceError, gitCloneSchema, gitPushSchema, gitStatusSchema } from '@coppice/protocol';
import { z } from 'zod';
import { filePath, repositoryPath, timeoutSecs, workDirectory, workspaceId } from '../fields.ts';
import { additive, defineTool, outward, readOnly, type Tool, unbounded } from '../tool.ts';

/** What to call next, by what git ran into; as `details.trouble` of an error says. */
const advice: Readonly<Record<string, string>> = {
  no_repository: 'Give the directory of a repository as path, or make one with git_clone.',
  login: 'Give the token once with set_env, as GIT_TOKEN, then call again.',
  network: 'Allow the internet with network_policy, allow_internet: true, then call again.',
  exists: 'Call git_clone with another path, one that is not there yet.',
  other: 'Read what git says; workspace_git_status shows the state of the repository.',
};

/** Advice that names tools, as the hints of the service name commands. */
export const advised = async <T>(work: Promise<T>): Promise<T> => {
  try {
    return await work;
  } catch (error) {
    const trouble = error instanceof CoppiceError ? error.details?.trouble : undefined;
    const hint = typeof trouble === 'string' ? advice[trouble] : undefined;
    if (!(error instanceof CoppiceError) || hint === undefined) throw error;
    throw new CoppiceError(error.code, error.message, { hint, cause: error });
  }
};

const milliseconds = (secs: number): number => Math.ceil(secs * 1000);

const clone = defineTool({
  name: 'git_clone',
  title: 'Clone a repository',
  description:
    'Clones into the workspace. Credentials in the URL are used once and kept nowhere; better give GIT_TOKEN with set_env. Needs allow_internet for hosts outside. Do not use it where the repository is already (exec with git pull).',
  actions: ['gitClone'],
  annotations: outward(additive),
  input: z.strictObject({
    workspace_id: workspaceId,
    url: gitCloneSchema.shape.url.describe('Of the repository: https, http, git, ssh or file.'),
    path: filePath
      .default(workDirectory)
      .describe(`Where to; ${workDirectory} by default, as for all git tools.`),
    branch: gitCloneSchema.shape.branch.describe('Branch or tag to check out.'),
    depth: gitCloneSchema.shape.depth.describe('Only so many commits of history.'),
    timeout_secs: timeoutSecs(300),
  }),
  output: z.object({
    success: z.literal(true),
    path: z.string(),
    commit_sha: z.string().nullable(),
    url: z.string(),
    branch: z.string().nullable(),
    depth: z.number().nullable(),
  }),
  run: async (context, { workspace_id: ref, timeout_secs: secs, ...body }) => {
    const params = { sandbox: await context.own(ref) };
    const cloned = await context.during('cloning', () =>
      advised(context.call('gitClone', { params, body: { ...body, timeout_ms: milliseconds(secs) } })),
    );
    return { success: true as const, ...cloned, depth: body.depth ?? null };
  },
});

const status = defineTool({
  name: 'workspace_git_status',
  title: 'Status of a repository',
  description:
    'Branch, and what is staged, modified, untracked and in conflict, as lists; dirty tells whether anything is. Do not use it to see the changed lines (git_diff).',
  actions: ['gitStatus'],
  annotations: readOnly,
  input: z.strictObject({ workspace_id: workspaceId, path: repositoryPath }),
  output: gitStatusSchema,
  run: async (context, { workspace_id: ref, path }) =>
    advised(context.call('gitStatus', { params: { sandbox: await context.own(ref) }, query: { path } })),
});

const commit = defineTool({
  name: 'git_commit',
  title: 'Commit changes',
  description:
    'Commits in the workspace, by default all changes (add_all). With nothing to commit it says so and is no error. Do not use it to publish: that is git_push.',
  actions: ['gitCommit'],
  annotations: additive,
  input: z.strictObject({
    workspace_id: workspaceId,
    path: repositoryPath,
    message: z.string().min(1).max(65_536).describe('Message of the commit.'),
    add_all: z.boolean().default(true).describe('Commit all changes, also of new files.'),
    author_name: z.string().min(1).max(256).optional().describe('Instead of who is configured.'),
    author_email: z.string().min(1).max(256).optional().describe('Instead of what is configured.'),
  }),
  output: z.object({
    status: z.enum(['committed', 'nothing_to_commit']),
    commit_sha: z.string().optional(),
    short_sha: z.string().optional(),
    branch: z.string().nullable().optional(),
    summary: z.string().optional(),
    message: z.string().optional(),
  }),
  run: async (context, { workspace_id: ref, add_all: all, ...body }) => {
    const params = { sandbox: await context.own(ref) };
    const { path, commit: made } = await advised(
      context.call('gitCommit', { params, body: { ...body, all } }),
    );
    if (made === null)
      return { status: 'nothing_to_commit' as const, message: `nothing to commit in ${path}` };
    const { sha: commit_sha, ...rest } = made;
    return { status: 'committed' as const, commit_sha, ...rest };
  },
});

const push = defineTool({
  name: 'git_push',
  title: 'Push commits',
  description:
    'Pushes a branch to a remote, logged in with GIT_TOKEN of set_env. Do not use force unless the user asks for it: it removes the commits of others.',
  actions: ['gitPush'],
  annotations: outward(unbounded),
  input: z.strictObject({
    workspace_id: workspaceId,
    path: repositoryPath,
    remote: gitPushSchema.shape.remote.describe('Name or URL of the remote.'),
    branch: gitPushSchema.shape.branch.describe('The current one by default.'),
    force: z.boolean().default(false).describe('Replace what the remote has.'),
    set_upstream: z.boolean().default(false).describe('Remember the remote for this branch.'),
    timeout_secs: timeoutSecs(120),
  }),
  output: z.object({ remote: z.string(), branch: z.string(), success: z.literal(true), output: z.string() }),
  next: { wrong_state: 'Give branch, or make one with exec: git switch -c NAME.' },
  run: async (context, { workspace_id: ref, timeout_secs: secs, ...body }) => {
    const params = { sandbox: await context.own(ref) };
    const pushed = await context.during('pushing', () =>
      advised(context.call('gitPush', { params, body: { ...body, timeout_ms: milliseconds(secs) } })),
    );
    return { ...pushed, success: true as const };
  },
});

const diff = defineTool({
  name: 'git_diff',
  title: 'Changed lines of a repository',
  description:
    'Unified diff of what is not committed (or of what is staged), or only its statistics. Do not use it to compare with a snapshot (snapshot_diff).',
  actions: ['gitDiff'],
  annotations: readOnly,
  input: z.strictObject({
    workspace_id: workspaceId,
    path: repositoryPath,
    staged: z.boolean().default(false).describe('What is staged instead of what is not.'),
    stat: z.boolean().default(false).describe('Only the statistics.'),
    file_path: z.string().min(1).max(4096).optional().describe('Only this file, relative to the repository.'),
    max_bytes: z.int().min(1).max(4_194_304).default(20_000).describe('Bytes of the diff at most.'),
  }),
  output: z.object({ diff: z.string(), truncated: z.boolean(), stat: z.string() }),
  run: async (context, { workspace_id: ref, staged, stat, file_path: file, ...query }) => {
    const params = { sandbox: await context.own(ref) };
    const shown = await advised(
      context.call('gitDiff', { params, query: { ...query, file, staged: `${staged}`, stat: `${stat}` } }),
    );
    const note = shown.truncated ? '\n[TRUNCATED: give file_path for one file, or raise max_bytes]' : '';
    return { ...shown, diff: `${shown.diff}${note}` };
  },
});

export const gitTools: readonly Tool[] = [clone, status, commit, push, diff];
