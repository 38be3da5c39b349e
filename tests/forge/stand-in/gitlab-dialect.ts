import type { BuiltinForge } from '@coppice/forge';
import type { CoppiceError, Pull } from '@coppice/protocol';
import type { Answered, Asked, Dialect } from './stand-in.ts';

/** Fields as GitLab documents them for its REST API, version 4. */
const mergeRequestOf = (pull: Pull) => ({
  id: 1000 + pull.number,
  iid: pull.number,
  project_id: 1,
  title: `${pull.draft ? 'Draft: ' : ''}${pull.title}`,
  description: pull.body,
  state: pull.state === 'open' ? 'opened' : pull.state,
  draft: pull.draft,
  source_branch: pull.head,
  target_branch: pull.base,
  sha: pull.head_sha,
  has_conflicts: pull.mergeable === false,
  detailed_merge_status:
    pull.state !== 'open' ? 'not_open' : pull.mergeable === false ? 'conflict' : 'mergeable',
  merge_commit_sha: pull.merge_sha,
  squash_commit_sha: null,
  web_url: pull.url,
});

async function answer(
  { method, path, query, body = {} }: Asked,
  forge: BuiltinForge,
): Promise<Answered | undefined> {
  const call = (wanted: string, pattern: RegExp) =>
    method === wanted ? pattern.exec(path)?.slice(1).map(decodeURIComponent) : undefined;
  const ok = (value: object, status = 200): Answered => ({ status, body: value });
  let found: string[] | undefined;
  if (method === 'GET' && path === '')
    return ok({ id: 1, path_with_namespace: 'acme/app', default_branch: 'main' });
  found = call('GET', /^\/issues\/(\d+)$/);
  if (found !== undefined) {
    const { id, title, body: words, state, type, url } = await forge.issue(found[0]!);
    return ok({
      id: 1,
      iid: Number(id),
      title,
      description: words,
      state: state === 'open' ? 'opened' : 'closed',
      labels: [type],
      web_url: url,
    });
  }
  found = call('POST', /^\/issues\/(\d+)\/notes$/);
  if (found !== undefined) {
    const made = await forge.comment(found[0]!, String(body.body));
    return ok({ id: Number(made.id), body: made.body, noteable_type: 'Issue' }, 201);
  }
  const branchBody = (name: string, sha: string) => ({
    name,
    merged: false,
    protected: false,
    commit: { id: sha },
  });
  found = call('GET', /^\/repository\/branches\/([^/]+)$/);
  if (found !== undefined) {
    const branch = await forge.branch(found[0]!);
    return branch && ok(branchBody(branch.name, branch.sha));
  }
  if (method === 'POST' && path === '/repository/branches') {
    const made = await forge.createBranch(String(body.branch), String(body.ref));
    return ok(branchBody(made.name, made.sha), 201);
  }
  found = call('DELETE', /^\/repository\/branches\/([^/]+)$/);
  if (found !== undefined) {
    await forge.deleteBranch(found[0]!);
    return { status: 204 };
  }
  if (method === 'GET' && path === '/repository/compare') {
    const { ahead } = await forge.compare(query.get('from')!, query.get('to')!);
    return ok({
      commits: Array.from({ length: ahead }, (_, n) => ({ id: String(n) })),
      diffs: [],
      compare_same_ref: false,
    });
  }
  if (method === 'GET' && path === '/merge_requests') {
    const all = await forge.pulls(query.get('state') === 'opened' ? 'open' : 'all');
    return ok(all.filter(({ head }) => head === query.get('source_branch')).map(mergeRequestOf));
  }
  if (method === 'POST' && path === '/merge_requests') {
    const { source_branch, target_branch, title, description } = body as Record<string, string>;
    const draft = title!.startsWith('Draft: ');
    const made = await forge.createPull({
      head: source_branch!,
      base: target_branch!,
      title: title!.replace('Draft: ', ''),
      body: description ?? '',
      draft,
    });
    return ok(mergeRequestOf(made), 201);
  }
  found = call('GET', /^\/merge_requests\/(\d+)$/);
  if (found !== undefined) return ok(mergeRequestOf(await forge.pull(Number(found[0]))));
  found = call('PUT', /^\/merge_requests\/(\d+)$/);
  if (found !== undefined) {
    const { state_event, title, description } = body as Record<string, string>;
    const number = Number(found[0]);
    const change = {
      ...(title === undefined ? {} : { title: title.replace('Draft: ', '') }),
      ...(description === undefined ? {} : { body: description }),
    };
    return ok(
      mergeRequestOf(
        state_event === 'close' ? await forge.closePull(number) : await forge.updatePull(number, change),
      ),
    );
  }
  found = call('PUT', /^\/merge_requests\/(\d+)\/merge$/);
  if (found !== undefined) {
    const { sha, squash, squash_commit_message, merge_commit_message } = body as Record<string, string> & {
      squash?: boolean;
    };
    const pull = await forge.pull(Number(found[0]));
    if (pull.state !== 'open') return { status: 405, body: { message: '405 Method Not Allowed' } };
    const message = squash_commit_message ?? merge_commit_message;
    await forge.mergePull(pull.number, {
      expectedHead: sha ?? pull.head_sha,
      method: squash ? 'squash' : 'merge',
      ...(message === undefined ? {} : { message }),
    });
    return ok(mergeRequestOf(await forge.pull(pull.number)));
  }
  found = call('GET', /^\/merge_requests\/(\d+)\/approvals$/);
  if (found !== undefined) {
    const reviews = await forge.reviews(Number(found[0]));
    const approved = reviews.filter(({ state }) => state === 'approved');
    return ok({ approved_by: approved.map(({ author }) => ({ user: { username: author } })) });
  }
  found = call('GET', /^\/merge_requests\/(\d+)\/reviewers$/);
  if (found !== undefined) {
    const reviews = await forge.reviews(Number(found[0]));
    const states = { approved: 'approved', changes_requested: 'requested_changes', commented: 'reviewed' };
    return ok(reviews.map(({ author, state }) => ({ user: { username: author }, state: states[state] })));
  }
  found = call('GET', /^\/repository\/commits\/(\w+)\/statuses$/);
  if (found !== undefined) {
    const states = { pending: 'pending', success: 'success', failure: 'failed' };
    const checks = query.get('page') === '1' ? await forge.checks(found[0]!) : [];
    return ok(
      checks.map(({ name, state, description, url }) => ({
        name,
        status: states[state],
        description,
        target_url: url,
      })),
    );
  }
  found = call('POST', /^\/statuses\/(\w+)$/);
  if (found !== undefined) {
    const { state, name, description, target_url } = body as Record<string, string>;
    await forge.reportCheck(found[0]!, {
      name: name!,
      state: state === 'failed' ? 'failure' : (state as 'success'),
      description: description ?? '',
      url: target_url ?? null,
    });
    return ok({ name, status: state }, 201);
  }
  return undefined;
}

function failure({ method, path }: Asked, error: CoppiceError): Answered {
  const say = (status: number, message: string): Answered => ({ status, body: { message } });
  if (path === '/repository/branches' && method === 'POST')
    return say(400, error.code === 'name_taken' ? 'Branch already exists' : 'Invalid reference name');
  if (error.code === 'not_found') return say(404, '404 Not Found');
  if (error.code === 'name_taken')
    return say(409, 'Another open merge request already exists for this source branch');
  if (error.code !== 'conflict') return say(405, '405 Method Not Allowed');
  return error.details?.reason === 'head_moved'
    ? say(409, 'SHA does not match HEAD of source branch')
    : say(422, 'Branch cannot be merged');
}

export const gitlabDialect: Dialect = {
  kind: 'gitlab',
  api: '/api/v4/projects/acme%2Fapp',
  login: (token) => ({ authorization: `Bearer ${token}` }),
  answer,
  failure,
};
