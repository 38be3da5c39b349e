import type { Readable } from 'node:stream';
import type { RouteBody, RouteName, RouteParams, RouteQuery, RouteResult } from '@coppice/protocol';
import { routeTable } from '../route-table.ts';
import type { Connection } from './connection.ts';
import type { HttpCall } from './http-call.ts';
import { errorFromStreamEvent } from './problem.ts';
import { parseServerSentEvents, type ServerSentEvent } from './server-sent-events.ts';

export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
}

type Part<K extends string, T> = [T] extends [never]
  ? { readonly [P in K]?: never }
  : { readonly [P in K]: T };
type OptionalPart<K extends string, T> = [T] extends [never]
  ? { readonly [P in K]?: never }
  : { readonly [P in K]?: T };

export type CallInput<N extends RouteName> = Part<'params', RouteParams<N>> &
  OptionalPart<'query', RouteQuery<N>> &
  OptionalPart<'body', RouteBody<N>> &
  CallOptions & { readonly upload?: Readable; readonly uploadBytes?: number | undefined };

interface LooseInput extends CallOptions {
  readonly params?: Readonly<Record<string, unknown>>;
  readonly query?: Readonly<Record<string, unknown>>;
  readonly body?: unknown;
  readonly upload?: Readable;
  readonly uploadBytes?: number | undefined;
}

/** Calls routes by name, typed by the table that the daemon serves from. */
export class Caller {
  readonly connection: Connection;

  constructor(connection: Connection) {
    this.connection = connection;
  }

  async call<N extends RouteName>(name: N, input: CallInput<N>): Promise<RouteResult<N>> {
    return (await this.connection.json(httpCall(name, input as LooseInput))) as RouteResult<N>;
  }

  text<N extends RouteName>(name: N, input: CallInput<N>): Promise<string> {
    return this.connection.text(httpCall(name, input as LooseInput));
  }

  bytes<N extends RouteName>(name: N, input: CallInput<N>): AsyncGenerator<Buffer, void, undefined> {
    return this.connection.bytes(httpCall(name, input as LooseInput));
  }

  /** Server-sent events; one of type `error` is thrown. */
  async *events<N extends RouteName>(
    name: N,
    input: CallInput<N>,
  ): AsyncGenerator<ServerSentEvent, void, undefined> {
    const call = httpCall(name, input as LooseInput);
    const bytes = this.connection.bytes({ ...call, headers: { accept: 'text/event-stream' } });
    for await (const event of parseServerSentEvents(bytes)) {
      if (event.event === 'error') throw errorFromStreamEvent(event.data);
      yield event;
    }
  }

  /** The path of a route, for a WebSocket. */
  path<N extends RouteName>(name: N, params: RouteParams<N>): string {
    return httpCall(name, { params: params as Record<string, unknown> }).path;
  }
}

const httpCall = (name: RouteName, input: LooseInput): HttpCall => {
  const { method, path } = routeTable[name];
  const { params, query, body, upload, uploadBytes, signal } = input;
  const filled =
    params === undefined
      ? path
      : path.replace(/:(\w+)/g, (_, key) => encodeURIComponent(String(params[key])));
  return {
    method,
    path: query === undefined ? filled : filled + queryString(query),
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    ...(upload === undefined ? {} : { upload }),
    ...(uploadBytes === undefined ? {} : { uploadBytes }),
    ...(signal === undefined ? {} : { signal }),
  };
};

const queryString = (query: Readonly<Record<string, unknown>>): string => {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value !== undefined) search.set(key, String(value));
  const text = search.toString();
  return text === '' ? '' : `?${text}`;
};
