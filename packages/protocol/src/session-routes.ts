import type { Route } from './route.ts';
import { list, sandbox } from './route-parts.ts';
import * as sessions from './sessions.ts';

/** Sessions of agents, and the sandboxes they own. */
export const sessionRoutes = {
  listSessions: {
    method: 'GET',
    path: '/v1/sessions',
    tag: 'sessions',
    summary: 'Sessions of agents that own sandboxes',
    scope: 'admin',
    answer: 'json',
    result: list(sessions.sessionSchema),
  },
  adoptSandbox: {
    method: 'POST',
    path: '/v1/sandboxes/:sandbox/adopt',
    tag: 'sessions',
    summary: 'Make a sandbox a session’s own; from a session that is at work only by force',
    scope: 'admin',
    answer: 'json',
    params: sandbox,
    body: sessions.adoptSandboxSchema,
    result: sessions.adoptedSandboxSchema,
  },
} as const satisfies Record<string, Route>;
