import { z } from 'zod';
import * as machine from './machine.ts';
import { sandboxRefSchema } from './references.ts';
import type { Route } from './route.ts';
import { list, sandbox } from './route-parts.ts';
import * as sandboxes from './sandboxes.ts';

const port = z.strictObject({ sandbox: sandboxRefSchema, port: z.coerce.number().int().min(1).max(65535) });

/** Network policies and ports of sandboxes. */
export const networkRoutes = {
  setNetwork: {
    method: 'PATCH',
    path: '/v1/sandboxes/:sandbox/network',
    tag: 'network',
    summary: 'Change the network policy; this works while the sandbox runs',
    scope: 'project',
    answer: 'json',
    params: sandbox,
    body: sandboxes.networkPatchSchema,
    result: sandboxes.sandboxSchema,
  },
  listConnections: {
    method: 'GET',
    path: '/v1/sandboxes/:sandbox/connections',
    tag: 'network',
    summary: 'List its connections by name, allowed and refused',
    scope: 'sandbox',
    answer: 'json',
    params: sandbox,
    query: sandboxes.connectionsQuery,
    result: z.object({ connections: z.array(sandboxes.networkConnectionSchema) }),
  },
  listQuestions: {
    method: 'GET',
    path: '/v1/sandboxes/:sandbox/questions',
    tag: 'network',
    summary: 'List the names it wants to reach that nobody has allowed or refused yet',
    scope: 'sandbox',
    answer: 'json',
    params: sandbox,
    result: list(sandboxes.questionSchema),
  },
  answerQuestion: {
    method: 'POST',
    path: '/v1/sandboxes/:sandbox/questions/answer',
    tag: 'network',
    summary: 'Allow or refuse a name that it wants to reach',
    scope: 'project',
    answer: 'json',
    params: sandbox,
    body: sandboxes.answerQuestionSchema,
    result: sandboxes.answeredSchema,
  },
  forwardPort: {
    method: 'POST',
    path: '/v1/sandboxes/:sandbox/ports',
    tag: 'network',
    summary: 'Forward a host port to a port inside',
    scope: 'project',
    answer: 'json',
    params: sandbox,
    body: sandboxes.forwardPortSchema,
    result: sandboxes.portForwardSchema,
    status: 201,
  },
  listPorts: {
    method: 'GET',
    path: '/v1/sandboxes/:sandbox/ports',
    tag: 'network',
    summary: 'List port forwards',
    scope: 'sandbox',
    answer: 'json',
    params: sandbox,
    result: list(sandboxes.portForwardSchema),
  },
  waitForPort: {
    method: 'POST',
    path: '/v1/sandboxes/:sandbox/ports/:port/wait',
    tag: 'network',
    summary: 'Wait until something inside listens on a port',
    scope: 'sandbox',
    answer: 'json',
    params: port,
    body: sandboxes.waitForPortSchema,
    result: sandboxes.reachedPortSchema,
  },
  removePort: {
    method: 'DELETE',
    path: '/v1/sandboxes/:sandbox/ports/:port',
    tag: 'network',
    summary: 'Remove a port forward',
    scope: 'project',
    answer: 'json',
    params: port,
    result: machine.emptySchema,
  },
} as const satisfies Record<string, Route>;
