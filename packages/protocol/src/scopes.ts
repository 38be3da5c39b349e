import { type Access, type RouteName, routes } from './routes.ts';

/**
 * What a token reaches. A kind that is added later, such as a project or a person, gets a line in `parseScope` and one in
 * `covers`; a kind that is not known here reaches nothing.
 */
export type Scope = { readonly kind: 'admin' } | { readonly kind: 'sandbox'; readonly sandboxId: string };

export const parseScope = (text: string): Scope | undefined => {
  if (text === 'admin') return { kind: 'admin' };
  const sandboxId = /^sandbox:(.+)$/.exec(text)?.[1];
  return sandboxId === undefined ? undefined : { kind: 'sandbox', sandboxId };
};

/** Whether a scope is enough for that much access to that sandbox. No scope: a stranger. No id: no sandbox that is there. */
export const covers = (scope: Scope | undefined, access: Access, sandboxId: string | undefined): boolean => {
  if (access === 'public') return true;
  if (scope === undefined) return false;
  return scope.kind === 'admin' || (access === 'sandbox' && scope.sandboxId === sandboxId);
};

/** What tools of MCP do that no route does: move files from and to the host. */
const beyondRoutes = { transferFiles: 'admin' } as const satisfies Record<string, Access>;

export type Action = RouteName | keyof typeof beyondRoutes;

/** The one table of who may do what, for every door. */
export const accessOf = (action: Action): Access =>
  action in beyondRoutes
    ? beyondRoutes[action as keyof typeof beyondRoutes]
    : routes[action as RouteName].scope;
