import type { z } from 'zod';
import { branchRoutes } from './branches.ts';
import { daemonRoutes } from './daemon-routes.ts';
import { fileRoutes } from './file-routes.ts';
import { forgeRoutes } from './forge-routes.ts';
import { gatewayRoutes } from './gateway-routes.ts';
import { gitRoutes } from './git-routes.ts';
import { guardianRoutes } from './guardian.ts';
import { imageRoutes } from './image-routes.ts';
import { networkRoutes } from './network-routes.ts';
import { noteRoutes } from './note-routes.ts';
import { pageRoutes } from './page-routes.ts';
import { processRoutes } from './process-routes.ts';
import { projectRoutes } from './project-routes.ts';
import type { Route } from './route.ts';
import { runHealthRoutes } from './run-health.ts';
import { runRoutes } from './run-routes.ts';
import { runWebhookRoutes } from './run-webhooks.ts';
import { sandboxRoutes } from './sandbox-routes.ts';
import { sessionRoutes } from './session-routes.ts';
import { snapshotRoutes } from './snapshot-routes.ts';
import { swarmRoutes } from './swarm-routes.ts';

/** Every HTTP route: the server, the OpenAPI file, the SDK and the fuzzer read this table. Each subject has a file. */
export const routes = {
  ...daemonRoutes,
  ...sandboxRoutes,
  ...processRoutes,
  ...fileRoutes,
  ...snapshotRoutes,
  ...gitRoutes,
  ...forgeRoutes,
  ...branchRoutes,
  ...guardianRoutes,
  ...runHealthRoutes,
  ...swarmRoutes,
  ...sessionRoutes,
  ...noteRoutes,
  ...gatewayRoutes,
  ...networkRoutes,
  ...imageRoutes,
  ...runRoutes,
  ...runWebhookRoutes,
  ...pageRoutes,
  ...projectRoutes,
} as const satisfies Record<string, Route>;

export type Routes = typeof routes;
export type RouteName = keyof Routes;
type Field<R, K extends string> = R extends { readonly [P in K]: infer S extends z.ZodType } ? S : never;
/** What a caller gives and gets, for each route. */
export type RouteParams<N extends RouteName> = z.input<Field<Routes[N], 'params'>>;
export type RouteQuery<N extends RouteName> = z.input<Field<Routes[N], 'query'>>;
export type RouteBody<N extends RouteName> = z.input<Field<Routes[N], 'body'>>;
export type RouteResult<N extends RouteName> = z.output<Field<Routes[N], 'result'>>;
