import { z } from 'zod';
import { refSchema } from './ids.ts';
import * as machine from './machine.ts';
import type { Route } from './route.ts';
import { list } from './route-parts.ts';

/** The daemon itself: health, events, tokens. */
export const daemonRoutes = {
  health: {
    method: 'GET',
    path: '/v1/health',
    tag: 'daemon',
    summary: 'Check whether the daemon is healthy',
    scope: 'public',
    answer: 'json',
    result: machine.healthSchema,
  },
  doctor: {
    method: 'GET',
    path: '/v1/doctor',
    tag: 'daemon',
    summary: 'Find what is wrong with this machine and how to fix it',
    scope: 'admin',
    answer: 'json',
    result: machine.doctorSchema,
  },
  metrics: {
    method: 'GET',
    path: '/metrics',
    tag: 'daemon',
    summary: 'Metrics for Prometheus',
    scope: 'admin',
    answer: 'text',
  },
  listEvents: {
    method: 'GET',
    path: '/v1/events',
    tag: 'events',
    summary: 'List the events of what the token reaches, after a sequence number',
    scope: 'sandbox',
    answer: 'json',
    query: machine.eventsQuery,
    result: machine.eventListSchema,
  },
  streamEvents: {
    method: 'GET',
    path: '/v1/events/stream',
    tag: 'events',
    summary:
      'Stream the events of what the token reaches as they happen, from any sequence number (Last-Event-ID or `after`)',
    scope: 'sandbox',
    answer: 'events',
    query: machine.eventStreamQuery,
    result: machine.eventSchema,
  },
  listTokens: {
    method: 'GET',
    path: '/v1/tokens',
    tag: 'tokens',
    summary: 'List tokens',
    scope: 'admin',
    answer: 'json',
    result: list(machine.tokenSchema),
  },
  createToken: {
    method: 'POST',
    path: '/v1/tokens',
    tag: 'tokens',
    summary: 'Create a token; its secret is shown once',
    scope: 'admin',
    answer: 'json',
    body: machine.createTokenSchema,
    result: machine.createdTokenSchema,
    status: 201,
  },
  revokeToken: {
    method: 'DELETE',
    path: '/v1/tokens/:token',
    tag: 'tokens',
    summary: 'Revoke a token',
    scope: 'admin',
    answer: 'json',
    params: z.strictObject({ token: refSchema }),
    result: machine.emptySchema,
  },
} as const satisfies Record<string, Route>;
