import type { BuiltinForge } from '@coppice/forge';
import type { CoppiceError, Pull } from '@coppice/protocol';
import type {
  Branch,
  CombinedStatus,
  Comment,
  Compare,
  Issue,
  PullRequest,
  PullReview,
  Repository,
} from 'gitea-js';
import type { Answered, Asked, Dialect } from './stand-in.ts';

/** What it answers has the types of the client that is made from Gitea's own description. */
const draft = 'WIP: ';

const pullOf = (pull: Pull): PullRequest => ({
  id: pull.number,
  number: pull.number,
  title: `${pull.draft ? draft : ''}${pull.title}`,
  body: pull.body,
  state: pull.state === 'open' ? 'open' : 'closed',
  draft: pull.draft,
  merged: pull.state === 'merged',
  mergeable: pull.mergeable ?? false,
  head: { ref: pull.head, label: pull.head, sha: pull.head_sha, repo_id: 1 },
  base: { ref: pull.base, label: pull.base, repo_id: 1 },
  html_url: pull.url,
  ...(pull.merge_sha === null ? {} : { merge_commit_sha: pull.merge_sha }),
});

async function answer(
  { method, path, query, body = {} }: Asked,
  forge: BuiltinForge,
): Promise<Answered | undefined> {
  const call = (wanted: string, pattern: RegExp) =>
    method === wanted ? pattern.exec(path)?.slice(1).map(decodeURIComponent) : undefined;
  const ok = <T extends object>(value: T, status = 200): Answered => ({ status, body: value });
  let found: string[] | undefined;
  if (method === 'GET' && path === '')
    return ok<Repository>({ id: 1, full_name: 'acme/app', default_branch: 'main' });
  found = call('GET', /^\/issues\/(\d+)$/);
  if (found !== undefined) {
    const { id, title, body: words, state, type, url } = await forge.issue(found[0]!);
    return ok<Issue>({
      number: Number(id),
      title,
      body: words,
      state,
      labels: [{ name: type }],
      html_url: url,
    });
  }
  found = call('POST', /^\/issues\/(\d+)\/comments$/);
  if (found !== undefined) {
    const made = await forge.comment(found[0]!, String(body.body));
    return ok<Comment>({ id: Number(made.id), body: made.body, html_url: made.url }, 201);
  }
  found = call('GET', /^\/branches\/(.+)$/);
  if (found !== undefined) {
    const branch = await forge.branch(found[0]!);
    return branch && ok<Branch>({ name: branch.name, commit: { id: branch.sha } });
  }
  if (method === 'POST' && path === '/branches') {
    const made = await forge.createBranch(String(body.new_branch_name), String(body.old_ref_name));
    return ok<Branch>({ name: made.name, commit: { id: made.sha } }, 201);
  }
  found = call('DELETE', /^\/branches\/(.+)$/);
  if (found !== undefined) {
    await forge.deleteBranch(found[0]!);
    return { status: 204 };
  }
  found = call('GET', /^\/compare\/(.+)\.\.\.(.+)$/);
  if (found !== undefined)
    return ok<Compare>({ total_commits: (await forge.compare(found[0]!, found[1]!)).ahead, commits: [] });
  if (method === 'GET' && path === '/pulls') {
    const all =
      query.get('page') === '1' ? await forge.pulls(query.get('state') === 'open' ? 'open' : 'all') : [];
    return ok<PullRequest[]>(all.map(pullOf));
  }
  if (method === 'POST' && path === '/pulls') {
    const { head, base, title, body: words } = body as Record<string, string>;
    const isDraft = title!.startsWith(draft);
    const plain = isDraft ? title!.slice(draft.length) : title!;
    return ok(
      pullOf(
        await forge.createPull({ head: head!, base: base!, title: plain, body: words ?? '', draft: isDraft }),
      ),
      201,
    );
  }
  found = call('GET', /^\/pulls\/(\d+)$/);
  if (found !== undefined) return ok(pullOf(await forge.pull(Number(found[0]))));
  found = call('PATCH', /^\/pulls\/(\d+)$/);
  if (found !== undefined) {
    const { state, title, body: words } = body as Record<string, string>;
    const number = Number(found[0]);
    const change = {
      ...(title === undefined ? {} : { title: title.replace(draft, '') }),
      ...(words === undefined ? {} : { body: words }),
    };
    return ok(
      pullOf(state === 'closed' ? await forge.closePull(number) : await forge.updatePull(number, change)),
      201,
    );
  }
  found = call('POST', /^\/pulls\/(\d+)\/merge$/);
  if (found !== undefined) {
    const { Do, head_commit_id, MergeTitleField, MergeMessageField } = body as Record<string, string>;
    const pull = await forge.pull(Number(found[0]));
    if (pull.state !== 'open') return { status: 405, body: { message: 'Please try again later' } };
    await forge.mergePull(pull.number, {
      expectedHead: head_commit_id ?? pull.head_sha,
      method: Do as 'squash',
      ...(MergeTitleField === undefined ? {} : { title: MergeTitleField }),
      ...(MergeMessageField === undefined ? {} : { message: MergeMessageField }),
    });
    return { status: 200 };
  }
  found = call('GET', /^\/pulls\/(\d+)\/reviews$/);
  if (found !== undefined) {
    const reviews = query.get('page') === '1' ? await forge.reviews(Number(found[0])) : [];
    const states = { approved: 'APPROVED', changes_requested: 'REQUEST_CHANGES', commented: 'COMMENT' };
    return ok<PullReview[]>(
      reviews.map(({ id, author, state, body: words, sha }) => ({
        id: Number(id),
        user: { login: author },
        state: states[state],
        body: words,
        commit_id: sha,
        dismissed: false,
      })),
    );
  }
  found = call('GET', /^\/commits\/(\w+)\/status$/);
  if (found !== undefined) {
    const checks = await forge.checks(found[0]!);
    return ok<CombinedStatus>({
      sha: found[0]!,
      total_count: checks.length,
      statuses: checks.map(({ name, state, description, url }) => ({
        context: name,
        status: state,
        description,
        target_url: url ?? '',
      })),
    });
  }
  found = call('POST', /^\/statuses\/(\w+)$/);
  if (found !== undefined) {
    const { state, context, description, target_url } = body as Record<string, string>;
    await forge.reportCheck(found[0]!, {
      name: context!,
      state: state as 'success',
      description: description ?? '',
      url: target_url ?? null,
    });
    return ok({ context, status: state }, 201);
  }
  return undefined;
}

function failure(_asked: Asked, error: CoppiceError): Answered {
  const statuses: Partial<Record<CoppiceError['code'], number>> = {
    not_found: 404,
    name_taken: 409,
    conflict: 409,
  };
  return { status: statuses[error.code] ?? 405, body: { message: error.message } };
}

export const giteaDialect: Dialect = {
  kind: 'gitea',
  api: '/api/v1/repos/acme/app',
  login: (token) => ({ authorization: `token ${token}` }),
  answer,
  failure,
};
