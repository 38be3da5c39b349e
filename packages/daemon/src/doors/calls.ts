import { CoppiceError, type Route, type RouteName, type Routes, routes } from '@coppice/protocol';
import type { z } from 'zod';
import type { Principal, Progress } from '../services.ts';
import type { Call, Handlers } from './call.ts';
import type { Gate } from './gate.ts';
import type { MessageSocket } from './http/message-socket.ts';
import { invalidInput } from './problem.ts';

/** A call whose caller may make it: what is known before its body is looked at. */
export interface Admitted<N extends RouteName = RouteName> {
  readonly name: N;
  readonly principal: Principal | undefined;
  readonly params: Call<N>['params'];
  readonly query: Call<N>['query'];
}

export interface CallRest {
  readonly body?: unknown;
  readonly upload?: AsyncIterable<Uint8Array>;
  readonly signal: AbortSignal;
  readonly progress?: Progress | undefined;
  readonly lastEventId?: string | undefined;
}

type AnyHandler = (call: unknown, socket?: MessageSocket) => unknown;

/** Every door makes its calls here: they are permitted by one table, validated by one schema and run by one handler. */
export class Calls {
  readonly #gate: Gate;
  readonly #handlers: Handlers;

  constructor(gate: Gate, handlers: Handlers) {
    this.#gate = gate;
    this.#handlers = handlers;
  }

  admit<N extends RouteName>(
    principal: Principal | undefined,
    name: N,
    params: unknown,
    query: unknown,
  ): Admitted<N> {
    const route: Route = routes[name];
    const parsed = parse(route.params, params, 'path') as { sandbox?: string } | undefined;
    this.#gate.assertMay(principal, name, parsed?.sandbox);
    if (route.query === undefined && Object.keys((query ?? {}) as object).length > 0)
      throw new CoppiceError('invalid_argument', 'this call takes no query parameters');
    return {
      name,
      principal,
      params: parsed as Call<N>['params'],
      query: parse(route.query, query ?? {}, 'query') as Call<N>['query'],
    };
  }

  run<N extends RouteName>(
    { name, principal, params, query }: Admitted<N>,
    { body, upload = noBytes(), signal, progress, lastEventId }: CallRest,
    socket?: MessageSocket,
  ): ReturnType<Handlers[N]> {
    const route: Route = routes[name];
    const handler = this.#handlers[name] as unknown as AnyHandler;
    const call = {
      principal,
      params,
      query,
      body: parse(route.body, body ?? {}, 'body'),
      upload,
      signal,
      progress,
      lastEventId,
    };
    return handler(call, socket) as ReturnType<Handlers[N]>;
  }
}

const parse = (schema: z.ZodType | undefined, value: unknown, where: string): unknown => {
  if (schema === undefined) return undefined;
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw invalidInput(parsed.error, where);
  return parsed.data;
};

async function* noBytes(): AsyncGenerator<Uint8Array> {}

/** What a door inside the daemon gives for a call, before it is validated. */
export type CallInput<N extends RouteName> = Given<Routes[N], 'params'> &
  Given<Routes[N], 'query'> &
  Given<Routes[N], 'body'>;
type Given<R, K extends string> = R extends { readonly [P in K]: infer S extends z.ZodType }
  ? { readonly [P in K]: z.input<S> }
  : { readonly [P in K]?: undefined };
