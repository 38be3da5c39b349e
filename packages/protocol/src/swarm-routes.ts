import { documentBytes, type Route } from './route.ts';
import { sandbox } from './route-parts.ts';
import * as swarms from './swarms.ts';

/** Sandboxes that are prepared once, and tasks that run in forks of them. */
export const swarmRoutes = {
  prepareSandbox: {
    method: 'POST',
    path: '/v1/sandboxes/prepare',
    tag: 'swarms',
    summary:
      'Create a sandbox, set it up and snapshot it as `golden`. Safe to repeat: it returns what is there',
    scope: 'project',
    answer: 'events',
    body: swarms.prepareSandboxSchema,
    bodyBytes: documentBytes.environment,
    result: swarms.prepareEventSchema,
  },
  runSwarm: {
    method: 'POST',
    path: '/v1/sandboxes/:sandbox/swarm',
    tag: 'swarms',
    summary: 'Run each task in its own fork of a snapshot, and merge their commits if asked',
    scope: 'project',
    answer: 'events',
    params: sandbox,
    body: swarms.runSwarmSchema,
    bodyBytes: documentBytes.environment,
    result: swarms.swarmEventSchema,
  },
} as const satisfies Record<string, Route>;
