import { z } from 'zod';
import * as gateway from './gateway.ts';
import * as gatewayEvents from './gateway-events.ts';
import * as machine from './machine.ts';
import type { Route } from './route.ts';
import { list, sandbox } from './route-parts.ts';

const secret = z.strictObject({ secret: gateway.secretNameSchema });

/** Calls to models: who pays, secrets, costs, budgets. */
export const gatewayRoutes = {
  setCaller: {
    method: 'PUT',
    path: '/v1/sandboxes/:sandbox/caller',
    tag: 'gateway',
    summary: 'Set which run, agent and project its model calls are billed to',
    scope: 'admin',
    answer: 'json',
    params: sandbox,
    body: gatewayEvents.callerSchema,
    result: gatewayEvents.callerSchema,
  },
  getCaller: {
    method: 'GET',
    path: '/v1/sandboxes/:sandbox/caller',
    tag: 'gateway',
    summary: 'Show which run, agent and project its model calls are billed to',
    scope: 'admin',
    answer: 'json',
    params: sandbox,
    result: gatewayEvents.callerSchema,
  },
  setSecret: {
    method: 'PUT',
    path: '/v1/secrets/:secret',
    tag: 'gateway',
    summary: 'Create a secret in the gateway, or change its value',
    scope: 'admin',
    answer: 'json',
    params: secret,
    body: gateway.setSecretSchema,
    result: machine.emptySchema,
  },
  rekeySecrets: {
    method: 'POST',
    path: '/v1/secrets/rekey',
    tag: 'gateway',
    summary:
      'Seal every secret with another key: a fresh key file, or what the command of the key prints now',
    scope: 'admin',
    answer: 'json',
    result: machine.emptySchema,
  },
  listSecrets: {
    method: 'GET',
    path: '/v1/secrets',
    tag: 'gateway',
    summary: 'List the names of secrets; their values never leave the gateway',
    scope: 'admin',
    answer: 'json',
    result: list(gateway.secretSchema),
  },
  removeSecret: {
    method: 'DELETE',
    path: '/v1/secrets/:secret',
    tag: 'gateway',
    summary: 'Delete a secret',
    scope: 'admin',
    answer: 'json',
    params: secret,
    result: machine.emptySchema,
  },
  getCosts: {
    method: 'GET',
    path: '/v1/costs',
    tag: 'gateway',
    summary: 'Report what the model calls that the token may know of used and cost, grouped as you ask',
    scope: 'sandbox',
    answer: 'json',
    query: gateway.costsQuery,
    result: gateway.costsSchema,
  },
  setBudget: {
    method: 'PUT',
    path: '/v1/budgets',
    tag: 'gateway',
    summary: 'Set a budget for model calls',
    scope: 'admin',
    answer: 'json',
    body: gateway.setBudgetSchema,
    result: gateway.budgetSchema,
  },
  listBudgets: {
    method: 'GET',
    path: '/v1/budgets',
    tag: 'gateway',
    summary: 'List the budgets of what the token reaches and how much of each is spent',
    scope: 'sandbox',
    answer: 'json',
    result: list(gateway.budgetSchema),
  },
  removeBudget: {
    method: 'DELETE',
    path: '/v1/budgets',
    tag: 'gateway',
    summary: 'Remove a budget',
    scope: 'admin',
    answer: 'json',
    query: gateway.removeBudgetQuery,
    result: machine.emptySchema,
  },
} as const satisfies Record<string, Route>;
