import { CoppiceError, gitStatusSchema } from '@coppice/protocol';
import { z } from 'zod';
import { credentialHelper } from '../../../git/git-repository.ts';
import { redact } from '../../../redaction/redact.ts';
import { filePath, repositoryPath, timeoutSecs, workDirectory, workspaceId } from '../fields.ts';
import { GuestGit } from '../guest-git.ts';
import { additive, defineTool, outward, readOnly, type Tool, unbounded } from '../tool.ts';
import type { ToolContext } from '../tool-context.ts';

/** A word that git could take for an option is refused; all else goes through as one word. */
const notAnOption = (text: string): boolean => !text.startsWith('-') && !text.includes('\0');
/** Only https and http take one; elsewhere it would be of no use, and stay in the remote of the clone. */
const withoutUselessPassword = (text: string): boolean =>
  /^https?:/.test(text) || (URL.parse(text)?.password ?? '') === '';
const gitWord = z
  .string()
  .min(1)
  .max(1024)
  .refine(notAnOption, 'must not start with `-`')
  .refine(withoutUselessPassword, 'must not hold a password: only https and http take one');
const gitUrl = gitWord.refine(
  (url) =>
    /^(https?|git|ssh|file):\/\/\S+$/.test(url) || /^[\w.-]+@[\w.-]+:\S+$/.test(url) || url.startsWith('/'),
  'must be an https, http, git, ssh or file URL, host:path, or an absolute path',
);

/** What is in a URL of its user and password, and the URL without them. */
const splitCredentials = (url: string): { url: string; env: Record<string, string> } => {
  const parsed = /^https?:/.test(url) ? URL.parse(url) : null;
  if (parsed === null || (parsed.username === '' && parsed.password === '')) return { url, env: {} };
  const user = decodeURIComponent(parsed.username);
  const password = decodeURIComponent(parsed.password);
  parsed.username = '';
  parsed.password = '';
  const env =
    password === ''
      ? { GIT_USERNAME: 'x-access-token', GIT_PASSWORD: user }
      : { GIT_USERNAME: user, GIT_PASSWORD: password };
  return { url: parsed.href, env };
};

/** Some services take the token as the user. */
const hideUser = (context: ToolContext, { GIT_USERNAME: user = '' }: Record<string, string>): void => {
  if (user.length >= 16) context.secrets.add(user);
};

export const gitClone = defineTool({
  name: 'git_clone',
  title: 'Clone a repository',
  description:
    'Clones into the workspace. Credentials in the URL are used once and kept nowhere; better give GIT_TOKEN with set_env. Needs allow_internet for hosts outside. Do not use it where the repository is already (exec with git pull).',
  actions: ['exec'],
  annotations: outward(additive),
  input: z.strictObject({
    workspace_id: workspaceId,
    url: gitUrl.describe('Of the repository: https, http, git, ssh or file.'),
    path: filePath
      .default(workDirectory)
      .describe(`Where to; ${workDirectory} by default, as for all git tools.`),
    branch: gitWord.optional().describe('Branch or tag to check out.'),
    depth: z.int().min(1).optional().describe('Only so many commits of history.'),
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
  run: async (context, input) => {
    const id = context.own(input.workspace_id);
    const { url, env } = splitCredentials(input.url);
    hideUser(context, env);
    const git = new GuestGit(context, id, input.path);
    const args = [
      'clone',
      ...(input.branch === undefined ? [] : ['--branch', input.branch]),
      ...(input.depth === undefined ? [] : ['--depth', String(input.depth)]),
      '--',
      url,
      git.path,
    ];
    const options = { timeoutSecs: input.timeout_secs, env };
    const cloned = await context.during('cloning', () => git.tryOutside(args, options));
    if (cloned.exitCode !== 0) throw git.failure('clone', cloned);
    // Plain `git push` and `git commit` of the agent work in the clone too; the helper names variables, no secret.
    await git.run(['config', '--add', 'credential.helper', credentialHelper]);
    await giveIdentity(git);
    const head = await git.try(['rev-parse', '--verify', '--quiet', 'HEAD']);
    const branch = await branchOf(git);
    return {
      success: true as const,
      path: git.path,
      commit_sha: head.exitCode === 0 ? head.stdout.trim() : null,
      url: redact(url),
      branch: branch ?? null,
      depth: input.depth ?? null,
    };
  },
});

/** Commits need an author; one that is configured is left alone. */
const giveIdentity = async (git: GuestGit): Promise<void> => {
  const email = await git.try(['config', 'user.email']);
  if (email.exitCode === 0) return;
  await git.run(['config', 'user.name', 'Coppice agent']);
  await git.run(['config', 'user.email', 'agent@coppice.invalid']);
};

/** Undefined where HEAD is on no branch. */
const branchOf = async (git: GuestGit): Promise<string | undefined> => {
  const { exitCode, stdout } = await git.try(['symbolic-ref', '--short', '--quiet', 'HEAD']);
  return exitCode === 0 ? stdout.trim() : undefined;
};

const status = defineTool({
  name: 'workspace_git_status',
  title: 'Status of a repository',
  description:
    'Branch, and what is staged, modified, untracked and in conflict, as lists; dirty tells whether anything is. Do not use it to see the changed lines (git_diff).',
  actions: ['gitStatus'],
  annotations: readOnly,
  input: z.strictObject({ workspace_id: workspaceId, path: repositoryPath }),
  output: gitStatusSchema,
  next: { not_found: 'Give the directory of a repository as path, or make one with git_clone.' },
  run: (context, { workspace_id: ref, path }) =>
    context.call('gitStatus', { params: { sandbox: context.own(ref) }, query: { path } }),
});

const commit = defineTool({
  name: 'git_commit',
  title: 'Commit changes',
  description:
    'Commits in the workspace, by default all changes (add_all). With nothing to commit it says so and is no error. Do not use it to publish: that is git_push.',
  actions: ['exec'],
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
  run: async (context, input) => {
    const git = new GuestGit(context, context.own(input.workspace_id), input.path);
    if (input.add_all) await git.run(['add', '--all']);
    const staged = await git.try(['diff', '--cached', '--quiet']);
    if (staged.exitCode === 0)
      return { status: 'nothing_to_commit' as const, message: `nothing to commit in ${git.path}` };
    if (staged.exitCode !== 1) throw git.failure('diff', staged);
    await giveIdentity(git);
    await git.run(['commit', '--quiet', '--file=-'], {
      stdin: input.message,
      env: authorEnv(input.author_name, input.author_email),
    });
    const [sha = '', short = '', summary = ''] = (await git.run(['log', '-1', '--format=%H%n%h%n%s'])).split(
      '\n',
    );
    const branch = (await branchOf(git)) ?? null;
    return { status: 'committed' as const, commit_sha: sha, short_sha: short, branch, summary };
  },
});

const authorEnv = (name: string | undefined, email: string | undefined): Record<string, string> => ({
  ...(name === undefined ? {} : { GIT_AUTHOR_NAME: name, GIT_COMMITTER_NAME: name }),
  ...(email === undefined ? {} : { GIT_AUTHOR_EMAIL: email, GIT_COMMITTER_EMAIL: email }),
});

const push = defineTool({
  name: 'git_push',
  title: 'Push commits',
  description:
    'Pushes a branch to a remote, logged in with GIT_TOKEN of set_env. Do not use force unless the user asks for it: it removes the commits of others.',
  actions: ['exec'],
  annotations: outward(unbounded),
  input: z.strictObject({
    workspace_id: workspaceId,
    path: repositoryPath,
    remote: gitWord.default('origin').describe('Name or URL of the remote.'),
    branch: gitWord.optional().describe('The current one by default.'),
    force: z.boolean().default(false).describe('Replace what the remote has.'),
    set_upstream: z.boolean().default(false).describe('Remember the remote for this branch.'),
    timeout_secs: timeoutSecs(120),
  }),
  output: z.object({ remote: z.string(), branch: z.string(), success: z.literal(true), output: z.string() }),
  run: async (context, input) => {
    const git = new GuestGit(context, context.own(input.workspace_id), input.path);
    const branch = input.branch ?? (await branchOf(git));
    if (branch === undefined)
      throw new CoppiceError('wrong_state', `${git.path} is on no branch`, {
        hint: 'Give branch, or make one with exec: git switch -c NAME.',
      });
    const remote = splitCredentials(input.remote);
    hideUser(context, remote.env);
    const flags = [...(input.force ? ['--force'] : []), ...(input.set_upstream ? ['--set-upstream'] : [])];
    const pushed = await context.during('pushing', () =>
      git.try(['push', ...flags, '--', remote.url, branch], {
        timeoutSecs: input.timeout_secs,
        env: remote.env,
      }),
    );
    if (pushed.exitCode !== 0) throw git.failure('push', pushed);
    const output = redact(`${pushed.stdout}${pushed.stderr}`.trim());
    return { remote: redact(remote.url), branch, success: true as const, output };
  },
});

const diff = defineTool({
  name: 'git_diff',
  title: 'Changed lines of a repository',
  description:
    'Unified diff of what is not committed (or of what is staged), or only its statistics. Do not use it to compare with a snapshot (snapshot_diff).',
  actions: ['exec'],
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
  run: async (context, input) => {
    const git = new GuestGit(context, context.own(input.workspace_id), input.path);
    const range = input.staged ? ['--cached'] : [];
    const files = input.file_path === undefined ? [] : ['--', guestRelative(git.path, input.file_path)];
    const stat = await git.run(['diff', '--no-color', ...range, '--stat', ...files]);
    if (input.stat) return { diff: '', truncated: false, stat };
    const shown = await git.try(['diff', '--no-color', '--no-ext-diff', ...range, ...files], {
      maxOutputBytes: input.max_bytes,
    });
    if (shown.exitCode !== 0) throw git.failure('diff', shown);
    const note = shown.cut ? '\n[TRUNCATED: give file_path for one file, or raise max_bytes]' : '';
    return { diff: `${shown.stdout}${note}`, truncated: shown.cut, stat };
  },
});

const guestRelative = (repository: string, path: string): string =>
  path.startsWith('/') && path.startsWith(`${repository}/`) ? path.slice(repository.length + 1) : path;

export const gitTools: readonly Tool[] = [gitClone, status, commit, push, diff];
