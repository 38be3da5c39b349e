import type { Route } from './route.ts';
import { list, sandbox } from './route-parts.ts';
import * as sessions from './sessions.ts';

/** Sessions of agents, and the sandboxes they own. */
export const sessionRoutes = {
  listSessions: {
    method: 'GET',
    path: '/v1/sessions',
    tag: 'sessions',
    summary: 'List the agent sessions that own sandboxes',
    scope: 'admin',
    answer: 'json',
    result: list(sessions.sessionSchema),
  },
  adoptSandbox: {
    method: 'POST',
    path: '/v1/sandboxes/:sandbox/adopt',
    tag: 'sessions',
    summary: 'Transfer a sandbox to a session; taking it from an active session needs `force`',
    scope: 'admin',
    answer: 'json',
    params: sandbox,
    body: sessions.adoptSandboxSchema,
    result: sessions.adoptedSandboxSchema,
  },
} as const satisfies Record<string, Route>;
