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
    summary: 'Say for which run, agent and project its calls to models count',
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
    summary: 'For which run, agent and project its calls to models count',
    scope: 'admin',
    answer: 'json',
    params: sandbox,
    result: gatewayEvents.callerSchema,
  },
  setSecret: {
    method: 'PUT',
    path: '/v1/secrets/:secret',
    tag: 'gateway',
    summary: 'Give the gateway a secret, or another value for it',
    scope: 'admin',
    answer: 'json',
    params: secret,
    body: gateway.setSecretSchema,
    result: machine.emptySchema,
  },
  listSecrets: {
    method: 'GET',
    path: '/v1/secrets',
    tag: 'gateway',
    summary: 'Names of the secrets; their values never leave the gateway',
    scope: 'admin',
    answer: 'json',
    result: list(gateway.secretSchema),
  },
  removeSecret: {
    method: 'DELETE',
    path: '/v1/secrets/:secret',
    tag: 'gateway',
    summary: 'Forget a secret',
    scope: 'admin',
    answer: 'json',
    params: secret,
    result: machine.emptySchema,
  },
  getCosts: {
    method: 'GET',
    path: '/v1/costs',
    tag: 'gateway',
    summary: 'What calls to models took and cost, by anything',
    scope: 'admin',
    answer: 'json',
    query: gateway.costsQuery,
    result: gateway.costsSchema,
  },
  setBudget: {
    method: 'PUT',
    path: '/v1/budgets',
    tag: 'gateway',
    summary: 'Limit what calls to models may take',
    scope: 'admin',
    answer: 'json',
    body: gateway.setBudgetSchema,
    result: gateway.budgetSchema,
  },
  listBudgets: {
    method: 'GET',
    path: '/v1/budgets',
    tag: 'gateway',
    summary: 'Budgets, and what of them is spent',
    scope: 'admin',
    answer: 'json',
    result: list(gateway.budgetSchema),
  },
  removeBudget: {
    method: 'DELETE',
    path: '/v1/budgets',
    tag: 'gateway',
    summary: 'Take a limit away',
    scope: 'admin',
    answer: 'json',
    query: gateway.removeBudgetQuery,
    result: machine.emptySchema,
  },
} as const satisfies Record<string, Route>;
