import type { Access, Route } from './route.ts';
import { type RouteName, routes } from './routes.ts';

/** What a token reaches. A kind that is not known here reaches nothing. */
export type Scope =
  | { readonly kind: 'admin' }
  | { readonly kind: 'project'; readonly project: string }
  | { readonly kind: 'run'; readonly runId: string }
  | { readonly kind: 'sandbox'; readonly sandboxId: string }
  /** Fetch from one repository of the forge, and push one branch of it. No route. */
  | { readonly kind: 'branch'; readonly repository: string; readonly branch: string };

/** `read` looks only: it changes nothing and runs nothing. */
export type Role = 'full' | 'read';

export const parseScope = (text: string): Scope | undefined => {
  if (text === 'admin') return { kind: 'admin' };
  const [, repository, branch] = /^branch:([^:]+):(.+)$/.exec(text) ?? [];
  if (repository !== undefined && branch !== undefined) return { kind: 'branch', repository, branch };
  const [, kind, of = ''] = /^(project|run|sandbox):(.+)$/.exec(text) ?? [];
  if (kind === 'project') return { kind, project: of };
  if (kind === 'run') return { kind, runId: of };
  return kind === 'sandbox' ? { kind, sandboxId: of } : undefined;
};

/** As `parseScope` reads it. */
export const formatScope = (scope: Scope): string => {
  switch (scope.kind) {
    case 'admin':
      return 'admin';
    case 'project':
      return `project:${scope.project}`;
    case 'run':
      return `run:${scope.runId}`;
    case 'sandbox':
      return `sandbox:${scope.sandboxId}`;
    case 'branch':
      return `branch:${scope.repository}:${scope.branch}`;
  }
};

/** What a sandbox or a snapshot belongs to. */
export interface Belonging {
  readonly project: string;
  readonly sandboxId: string;
  readonly runId: string | null;
}

/** Whether a scope is enough to reach that at all; `permits` says for what. */
export const reaches = (scope: Scope, thing: Belonging): boolean => {
  switch (scope.kind) {
    case 'admin':
      return true;
    case 'project':
      return scope.project === thing.project;
    case 'run':
      return scope.runId === thing.runId;
    case 'sandbox':
      return scope.sandboxId === thing.sandboxId;
    case 'branch':
      return false;
  }
};

const kindsFor: Readonly<Record<Exclude<Access, 'public' | 'token'>, readonly Scope['kind'][]>> = {
  sandbox: ['admin', 'project', 'run', 'sandbox'],
  project: ['admin', 'project'],
  work: ['admin', 'project', 'run'],
  run: ['run'],
  admin: ['admin'],
};

/** Whether a token may do that to something: which things, `reaches` says. No token: a stranger. */
export const permits = (
  token: { readonly scope: Scope; readonly role: Role } | undefined,
  action: Action,
): boolean => {
  const access = accessOf(action);
  if (access === 'public') return true;
  if (access === 'token') return token !== undefined && token.scope.kind !== 'branch';
  if (token === undefined || !kindsFor[access].includes(token.scope.kind)) return false;
  return token.role === 'full' || isReading(action);
};

/** What tools of MCP do that no route does: move files from and to the host. */
const beyondRoutes = { transferFiles: 'admin' } as const satisfies Record<string, Access>;

export type Action = RouteName | keyof typeof beyondRoutes;

/** The one table of who may do what, for every door. */
export const accessOf = (action: Action): Access =>
  action in beyondRoutes
    ? beyondRoutes[action as keyof typeof beyondRoutes]
    : routes[action as RouteName].scope;

const isReading = (action: Action): boolean => {
  const route: Route | undefined = action in beyondRoutes ? undefined : routes[action as RouteName];
  return route?.method === 'GET' && route.answer !== 'socket';
};

/**
 * Fields that only an administrator may give, wherever the rest of the call is open to a project: they reach the host itself or
 * the sandboxes of others.
 */
export const fieldsOfAdmins: Readonly<Partial<Record<RouteName, readonly string[]>>> = {
  createSandbox: ['mounts', 'network.allow_host_ports', 'network.allow_inter_sandbox'],
  // Notes are shared by the agents of every project.
  runSwarm: ['notes'],
  setNetwork: ['allow_host_ports', 'allow_inter_sandbox'],
  forwardPort: ['host_port'],
};
