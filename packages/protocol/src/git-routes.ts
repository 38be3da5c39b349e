import * as git from './git.ts';
import { documentBytes, type Route } from './route.ts';
import { sandbox } from './route-parts.ts';

/** Git repositories in sandboxes. */
export const gitRoutes = {
  gitStatus: {
    method: 'GET',
    path: '/v1/sandboxes/:sandbox/git/status',
    tag: 'git',
    summary: 'Branch of a repository, and what has changed in it since the last commit',
    scope: 'sandbox',
    answer: 'json',
    params: sandbox,
    query: git.gitStatusQuery,
    result: git.gitStatusSchema,
  },
  mergeCommits: {
    method: 'POST',
    path: '/v1/sandboxes/:sandbox/git/merge',
    tag: 'git',
    summary:
      'Bring commits of forks into the repository of this sandbox; can be repeated, in both directions',
    scope: 'project',
    answer: 'json',
    params: sandbox,
    body: git.mergeCommitsSchema,
    bodyBytes: documentBytes.environment,
    result: git.mergedCommitsSchema,
  },
} as const satisfies Record<string, Route>;
