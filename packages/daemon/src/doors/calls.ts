import {
  CoppiceError,
  fieldsOfAdmins,
  type ReferenceField,
  type ReferenceKind,
  type Route,
  type RouteName,
  type Routes,
  referencesOf,
  routes,
} from '@coppice/protocol';
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
  readonly session?: string | undefined;
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

  async admit<N extends RouteName>(
    principal: Principal | undefined,
    name: N,
    params: unknown,
    query: unknown,
  ): Promise<Admitted<N>> {
    const route: Route = routes[name];
    this.#gate.assertMay(principal, name);
    const parsed = parse(route.params, params, 'path');
    const reached = await this.#reached(principal, route.params, parsed);
    if (route.query === undefined && Object.keys((query ?? {}) as object).length > 0)
      throw new CoppiceError('invalid_argument', 'this call takes no query parameters');
    return {
      name,
      principal,
      params: reached as Call<N>['params'],
      query: (await this.#reached(
        principal,
        route.query,
        parse(route.query, query ?? {}, 'query'),
      )) as Call<N>['query'],
    };
  }

  async run<N extends RouteName>(
    { name, principal, params, query }: Admitted<N>,
    { body, upload = noBytes(), signal, progress, session, lastEventId }: CallRest,
    socket?: MessageSocket,
  ): Promise<Awaited<ReturnType<Handlers[N]>>> {
    const route: Route = routes[name];
    const handler = this.#handlers[name] as unknown as AnyHandler;
    const call = {
      principal,
      params,
      query,
      body: await this.#body(principal, name, route, body),
      upload,
      signal,
      progress,
      session,
      lastEventId,
    };
    return (await handler(call, socket)) as Awaited<ReturnType<Handlers[N]>>;
  }

  /** A reference that somebody gives outside of a call, as services take it. */
  refer(principal: Principal, kind: ReferenceKind, ref: string): Promise<string> {
    return this.#gate.refer(principal, kind, ref);
  }

  /** The one project that a token reaches; undefined for an administrator's. */
  projectFor(principal: Principal): Promise<string | undefined> {
    return this.#gate.projectFor(principal);
  }

  async #body(
    principal: Principal | undefined,
    name: RouteName,
    route: Route,
    body: unknown,
  ): Promise<unknown> {
    const parsed = await this.#reached(principal, route.body, parse(route.body, body ?? {}, 'body'));
    if (principal?.scope.kind === 'admin') return parsed;
    for (const path of fieldsOfAdmins[name] ?? [])
      if (asksFor(parsed, path.split('.')))
        throw new CoppiceError('forbidden', `\`${path}\` reaches beyond the project of this token`, {
          hint: 'Leave it out, or ask an administrator.',
        });
    return parsed;
  }

  /** With every reference in it as services take it, and the project of the token where none is named. */
  async #reached(
    principal: Principal | undefined,
    schema: z.ZodType | undefined,
    value: unknown,
  ): Promise<unknown> {
    if (principal === undefined || principal.scope.kind === 'admin' || schema === undefined) return value;
    const fields = referenceFields(schema);
    if (fields.length === 0) return value;
    const given = value as Record<string, unknown>;
    const changed: Record<string, unknown> = {};
    for (const { name, kind, isList } of fields) {
      const ref = given[name];
      if (isList && Array.isArray(ref))
        changed[name] = await Promise.all(
          ref.map((item) => this.#gate.refer(principal, kind, item as string)),
        );
      else if (typeof ref === 'string') changed[name] = await this.#gate.refer(principal, kind, ref);
      else if (kind === 'project') changed[name] = await this.#gate.projectFor(principal);
    }
    return { ...given, ...changed };
  }
}

const fieldsBySchema = new WeakMap<z.ZodType, readonly ReferenceField[]>();

const referenceFields = (schema: z.ZodType): readonly ReferenceField[] => {
  const known = fieldsBySchema.get(schema) ?? referencesOf(schema);
  fieldsBySchema.set(schema, known);
  return known;
};

/** Whether something is asked for there: to have less than the default is open to everybody. */
const asksFor = (value: unknown, [first, ...rest]: string[]): boolean => {
  if (first !== undefined) return asksFor((value as Record<string, unknown> | undefined)?.[first], rest);
  return value !== undefined && value !== false && !(Array.isArray(value) && value.length === 0);
};

const parse = (schema: z.ZodType | undefined, value: unknown, where: string): unknown => {
  if (schema === undefined) return undefined;
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw invalidInput(parsed.error, where);
  return parsed.data;
};

async function* noBytes(): AsyncGenerator<Uint8Array> {}

/** What a door inside the daemon gives for a call, before it is validated. */
export type CallInput<N extends RouteName> = PartsOf<Routes[N]>;
// Route by route: for all of them at once the compiler would try every combination of their parts.
type PartsOf<R> = R extends unknown
  ? {
      readonly [P in keyof R & ('params' | 'query' | 'body')]: R[P] extends z.ZodType ? z.input<R[P]> : never;
    }
  : never;
