import type { BuiltinForge } from '@coppice/forge';
import type { CoppiceError, Pull } from '@coppice/protocol';
import type { Answered, Asked, Dialect } from './stand-in.ts';

const date = '2026-01-01T00:00:00Z';
const api = 'https://api.github.invalid';
const links = (what: string) => `${api}/repos/acme/app/${what}`;

/** Every field that GitHub's description asks for; most are addresses. */
const user = {
  login: 'acme',
  id: 1,
  node_id: 'U1',
  gravatar_id: null,
  type: 'User',
  site_admin: false,
  ...Object.fromEntries(
    [
      ...['avatar_url', 'url', 'html_url', 'followers_url', 'following_url', 'gists_url', 'starred_url'],
      ...['subscriptions_url', 'organizations_url', 'repos_url', 'events_url', 'received_events_url'],
    ].map((field) => [field, `${api}/users/acme`]),
  ),
};

const repositoryUrls = [
  ...['archive_url', 'assignees_url', 'blobs_url', 'branches_url', 'collaborators_url', 'comments_url'],
  ...['commits_url', 'compare_url', 'contents_url', 'contributors_url', 'deployments_url', 'downloads_url'],
  ...['events_url', 'forks_url', 'git_commits_url', 'git_refs_url', 'git_tags_url', 'hooks_url', 'html_url'],
  ...['issue_comment_url', 'issue_events_url', 'issues_url', 'keys_url', 'labels_url', 'languages_url'],
  ...['merges_url', 'milestones_url', 'notifications_url', 'pulls_url', 'releases_url', 'stargazers_url'],
  ...['statuses_url', 'subscribers_url', 'subscription_url', 'tags_url', 'teams_url', 'trees_url', 'url'],
];
const repository = {
  id: 1,
  node_id: 'R1',
  name: 'app',
  full_name: 'acme/app',
  owner: user,
  private: true,
  description: null,
  fork: false,
  ...Object.fromEntries(repositoryUrls.map((field) => [field, links('')])),
  clone_url: 'https://github.invalid/acme/app.git',
  git_url: 'git://github.invalid/acme/app.git',
  ssh_url: 'git@github.invalid:acme/app.git',
  svn_url: 'https://github.invalid/acme/app',
  mirror_url: null,
  homepage: null,
  language: null,
  license: null,
  forks: 0,
  forks_count: 0,
  stargazers_count: 0,
  watchers: 0,
  watchers_count: 0,
  size: 1,
  default_branch: 'main',
  open_issues: 1,
  open_issues_count: 1,
  has_issues: true,
  has_projects: false,
  has_wiki: false,
  has_pages: false,
  has_downloads: true,
  has_discussions: false,
  archived: false,
  disabled: false,
  visibility: 'private',
  pushed_at: date,
  created_at: date,
  updated_at: date,
  network_count: 0,
  subscribers_count: 0,
};

const end = (ref: string, sha: string) => ({ label: `acme:${ref}`, ref, sha, user, repo: repository });

const simplePull = (pull: Pull) => ({
  id: pull.number,
  node_id: `PR${pull.number}`,
  number: pull.number,
  state: pull.state === 'open' ? 'open' : 'closed',
  locked: false,
  title: pull.title,
  user,
  body: pull.body === '' ? null : pull.body,
  labels: [],
  milestone: null,
  created_at: date,
  updated_at: date,
  closed_at: pull.state === 'open' ? null : date,
  merged_at: pull.state === 'merged' ? date : null,
  merge_commit_sha: pull.merge_sha,
  assignee: null,
  assignees: [],
  requested_reviewers: [],
  requested_teams: [],
  head: end(pull.head, pull.head_sha),
  base: end(pull.base, pull.head_sha),
  author_association: 'OWNER',
  auto_merge: null,
  draft: pull.draft,
  ...Object.fromEntries(
    [
      ...['url', 'diff_url', 'patch_url', 'issue_url', 'commits_url', 'review_comments_url'],
      ...['review_comment_url', 'comments_url', 'statuses_url'],
    ].map((field) => [field, links(`pulls/${pull.number}`)]),
  ),
  html_url: pull.url,
  _links: Object.fromEntries(
    ['self', 'html', 'issue', 'comments', 'review_comments', 'review_comment', 'commits', 'statuses'].map(
      (name) => [name, { href: links(`pulls/${pull.number}`) }],
    ),
  ),
});
const fullPull = (pull: Pull) => ({
  ...simplePull(pull),
  merged: pull.state === 'merged',
  mergeable: pull.mergeable,
  rebaseable: pull.mergeable,
  mergeable_state: pull.mergeable === false ? 'dirty' : 'clean',
  merged_by: pull.state === 'merged' ? user : null,
  comments: 0,
  review_comments: 0,
  maintainer_can_modify: false,
  commits: 1,
  additions: 1,
  deletions: 0,
  changed_files: 1,
});

const problem = (status: number, message: string, errors: object[] = []): Answered => ({
  status,
  body: {
    message,
    documentation_url: 'https://docs.github.com/rest',
    ...(errors.length > 0 ? { errors } : {}),
  },
});

async function answer(
  { method, path, query, body = {} }: Asked,
  forge: BuiltinForge,
): Promise<Answered | undefined> {
  const at = (pattern: RegExp) => pattern.exec(path)?.slice(1).map(decodeURIComponent);
  const call = (wanted: string, pattern: RegExp) => (method === wanted ? at(pattern) : undefined);
  let found: string[] | undefined;
  if (method === 'GET' && path === '') return { status: 200, body: repository };
  found = call('GET', /^\/issues\/(\d+)$/);
  if (found !== undefined) {
    const issue = await forge.issue(found[0]!);
    return {
      status: 200,
      body: {
        id: 1,
        node_id: 'I1',
        number: Number(issue.id),
        state: issue.state,
        title: issue.title,
        body: issue.body,
        user,
        labels: [{ name: issue.type }],
        assignee: null,
        milestone: null,
        locked: false,
        comments: 0,
        closed_at: null,
        created_at: date,
        updated_at: date,
        author_association: 'OWNER',
        ...Object.fromEntries(
          ['url', 'repository_url', 'labels_url', 'comments_url', 'events_url'].map((field) => [
            field,
            links('issues/1'),
          ]),
        ),
        html_url: issue.url,
      },
    };
  }
  found = call('POST', /^\/issues\/(\d+)\/comments$/);
  if (found !== undefined) {
    const made = await forge.comment(found[0]!, String(body.body));
    return {
      status: 201,
      body: {
        id: Number(made.id),
        node_id: 'C1',
        url: links('comments/1'),
        html_url: made.url,
        issue_url: links('issues/1'),
        body: made.body,
        user,
        created_at: date,
        updated_at: date,
        author_association: 'OWNER',
      },
    };
  }
  const refBody = (name: string, sha: string) => ({
    ref: `refs/heads/${name}`,
    node_id: 'REF1',
    url: links(`git/refs/heads/${name}`),
    object: { type: 'commit', sha, url: links(`git/commits/${sha}`) },
  });
  found = call('GET', /^\/git\/ref\/heads\/(.+)$/);
  if (found !== undefined) {
    const branch = await forge.branch(found[0]!);
    return branch && { status: 200, body: refBody(branch.name, branch.sha) };
  }
  if (method === 'POST' && path === '/git/refs') {
    const name = String(body.ref).replace('refs/heads/', '');
    const made = await forge.createBranch(name, String(body.sha));
    return { status: 201, body: refBody(made.name, made.sha) };
  }
  found = call('DELETE', /^\/git\/refs\/heads\/(.+)$/);
  if (found !== undefined) {
    await forge.deleteBranch(found[0]!);
    return { status: 204 };
  }
  found = call('GET', /^\/compare\/(.+)\.\.\.(.+)$/);
  if (found !== undefined) {
    const { ahead, behind } = await forge.compare(found[0]!, found[1]!);
    const sha = (await forge.branch(found[0]!))!.sha;
    const person = { name: 'A', email: 'a@example.invalid', date };
    const commit = {
      url: links(`commits/${sha}`),
      sha,
      node_id: 'C',
      html_url: links(''),
      comments_url: links(''),
      commit: {
        url: links(''),
        author: person,
        committer: person,
        message: 'x',
        comment_count: 0,
        tree: { sha, url: links('') },
      },
      author: user,
      committer: user,
      parents: [],
    };
    return {
      status: 200,
      body: {
        ...Object.fromEntries(
          ['url', 'html_url', 'permalink_url', 'diff_url', 'patch_url'].map((field) => [
            field,
            links('compare'),
          ]),
        ),
        base_commit: commit,
        merge_base_commit: commit,
        status: ahead > 0 ? (behind > 0 ? 'diverged' : 'ahead') : behind > 0 ? 'behind' : 'identical',
        ahead_by: ahead,
        behind_by: behind,
        total_commits: ahead,
        commits: [],
        files: [],
      },
    };
  }
  if (method === 'GET' && path === '/pulls') {
    const head = query.get('head')?.split(':').slice(1).join(':');
    const all = await forge.pulls(query.get('state') === 'open' ? 'open' : 'all');
    return {
      status: 200,
      body: all.filter((pull) => head === undefined || pull.head === head).map(simplePull),
    };
  }
  if (method === 'POST' && path === '/pulls') {
    const { head, base, title, body: words, draft } = body as Record<string, string> & { draft?: boolean };
    const made = await forge.createPull({
      head: head!,
      base: base!,
      title: title!,
      body: words ?? '',
      draft: draft ?? false,
    });
    return { status: 201, body: fullPull(made) };
  }
  found = call('GET', /^\/pulls\/(\d+)$/);
  if (found !== undefined) return { status: 200, body: fullPull(await forge.pull(Number(found[0]))) };
  found = call('PATCH', /^\/pulls\/(\d+)$/);
  if (found !== undefined) {
    const { state, ...change } = body as { state?: string; title?: string; body?: string };
    const number = Number(found[0]);
    const changed =
      state === 'closed' ? await forge.closePull(number) : await forge.updatePull(number, change);
    return { status: 200, body: fullPull(changed) };
  }
  found = call('PUT', /^\/pulls\/(\d+)\/merge$/);
  if (found !== undefined) {
    const { sha, merge_method, commit_title, commit_message } = body as Record<string, string>;
    const number = Number(found[0]);
    const pull = await forge.pull(number);
    if (pull.state !== 'open') return problem(405, 'Pull Request is not mergeable');
    const merged = await forge.mergePull(number, {
      expectedHead: sha ?? pull.head_sha,
      method: (merge_method ?? 'merge') as 'merge',
      ...(commit_title === undefined ? {} : { title: commit_title }),
      ...(commit_message === undefined ? {} : { message: commit_message }),
    });
    return {
      status: 200,
      body: { sha: merged.sha, merged: true, message: 'Pull Request successfully merged' },
    };
  }
  found = call('GET', /^\/pulls\/(\d+)\/reviews$/);
  if (found !== undefined) {
    const reviews = query.get('page') === '1' ? await forge.reviews(Number(found[0])) : [];
    const states = { approved: 'APPROVED', changes_requested: 'CHANGES_REQUESTED', commented: 'COMMENTED' };
    return {
      status: 200,
      body: reviews.map(({ id, author, state, body: words, sha }) => ({
        id: Number(id),
        node_id: `RV${id}`,
        user: { ...user, login: author },
        body: words,
        state: states[state],
        html_url: links(''),
        pull_request_url: links(''),
        _links: { html: { href: links('') }, pull_request: { href: links('') } },
        submitted_at: date,
        commit_id: sha,
        author_association: 'OWNER',
      })),
    };
  }
  found = call('GET', /^\/commits\/(\w+)\/check-runs$/);
  if (found !== undefined) return { status: 200, body: { total_count: 0, check_runs: [] } };
  const statusOf = (check: Awaited<ReturnType<BuiltinForge['checks']>>[number]) => ({
    url: links('statuses'),
    avatar_url: null,
    id: 1,
    node_id: 'S1',
    state: check.state,
    description: check.description,
    target_url: check.url,
    context: check.name,
    created_at: date,
    updated_at: date,
  });
  found = call('GET', /^\/commits\/(\w+)\/status$/);
  if (found !== undefined) {
    const checks = await forge.checks(found[0]!);
    return {
      status: 200,
      body: {
        state: 'pending',
        statuses: checks.map(statusOf),
        sha: found[0],
        total_count: checks.length,
        repository,
        commit_url: links(''),
        url: links(''),
      },
    };
  }
  found = call('POST', /^\/statuses\/(\w+)$/);
  if (found !== undefined) {
    const { state, context, description, target_url } = body as Record<string, string>;
    const check = {
      name: context!,
      state: state as 'success',
      description: description ?? '',
      url: target_url ?? null,
    };
    await forge.reportCheck(found[0]!, check);
    return { status: 201, body: { ...statusOf(check), creator: user } };
  }
  return undefined;
}

/** In GitHub's words. */
function failure({ method, path }: Asked, error: CoppiceError): Answered {
  const isRef = path.startsWith('/git/refs');
  if (error.code === 'not_found')
    return isRef
      ? problem(422, method === 'POST' ? 'Object does not exist' : 'Reference does not exist')
      : problem(404, 'Not Found');
  if (error.code === 'name_taken')
    return isRef
      ? problem(422, 'Reference already exists')
      : problem(422, 'Validation Failed', [
          { resource: 'PullRequest', code: 'custom', message: 'A pull request already exists for acme:x.' },
        ]);
  if (error.code === 'wrong_state' && path === '/pulls')
    return problem(422, 'Validation Failed', [
      { resource: 'PullRequest', code: 'custom', message: 'No commits between main and x' },
    ]);
  if (error.code === 'conflict' && error.details?.reason === 'head_moved')
    return problem(409, 'Head branch was modified. Review and try the merge again.');
  return problem(405, 'Pull Request is not mergeable');
}

export const githubDialect: Dialect = {
  kind: 'github',
  api: '/api/v3/repos/acme/app',
  login: (token) => ({ authorization: `Bearer ${token}`, accept: 'application/vnd.github+json' }),
  answer,
  failure,
};
