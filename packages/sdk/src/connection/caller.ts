import type { RouteBody, RouteName, RouteParams, RouteQuery, RouteResult } from '@coppice/protocol';
import { routeTable } from '../route-table.ts';
import { joinBytes, textOfBytes } from './bytes.ts';
import { errorFromForeignAnswer, errorFromProblem, errorFromStreamEvent } from './problem.ts';
import { parseServerSentEvents, type ServerSentEvent } from './server-sent-events.ts';
import type { HttpCall, OpenAnswer, Transport, UploadBody } from './transport.ts';

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
  CallOptions & { readonly upload?: UploadBody; readonly uploadBytes?: number | undefined };

interface LooseInput extends CallOptions {
  readonly params?: Readonly<Record<string, unknown>>;
  readonly query?: Readonly<Record<string, unknown>>;
  readonly body?: unknown;
  readonly upload?: UploadBody;
  readonly uploadBytes?: number | undefined;
}

/** Calls routes by name, typed by the table that the daemon serves from. */
export class Caller {
  readonly transport: Transport;

  constructor(transport: Transport) {
    this.transport = transport;
  }

  async call<N extends RouteName>(name: N, input: CallInput<N>): Promise<RouteResult<N>> {
    const call = httpCall(name, input as LooseInput);
    const text = await this.#text(call);
    try {
      return (text === '' ? {} : JSON.parse(text)) as RouteResult<N>;
    } catch (cause) {
      throw errorFromForeignAnswer(text, this.transport.where, asked(call), cause);
    }
  }

  text<N extends RouteName>(name: N, input: CallInput<N>): Promise<string> {
    return this.#text(httpCall(name, input as LooseInput));
  }

  /** The bytes of the answer as they come. */
  bytes<N extends RouteName>(name: N, input: CallInput<N>): AsyncGenerator<Uint8Array, void, undefined> {
    return this.#bytes(httpCall(name, input as LooseInput));
  }

  /** Server-sent events; one of type `error` is thrown. */
  async *events<N extends RouteName>(
    name: N,
    input: CallInput<N>,
    onOpen?: () => void,
  ): AsyncGenerator<ServerSentEvent, void, undefined> {
    const call = httpCall(name, input as LooseInput);
    const bytes = this.#bytes({ ...call, headers: { accept: 'text/event-stream' } }, onOpen);
    for await (const event of parseServerSentEvents(bytes)) {
      if (event.event === 'error') throw errorFromStreamEvent(event.data);
      yield event;
    }
  }

  /** The path of a route, for a WebSocket. */
  path<N extends RouteName>(name: N, params: RouteParams<N>, query?: RouteQuery<N>): string {
    return httpCall(name, {
      params: params as Record<string, unknown>,
      ...(query === undefined ? {} : { query: query as Record<string, unknown> }),
    }).path;
  }

  async #text(call: HttpCall): Promise<string> {
    const { status, text } = await this.transport.document(call);
    if (isSuccess(status)) return text;
    throw errorFromProblem(status, text, asked(call));
  }

  async *#bytes(call: HttpCall, onOpen?: () => void): AsyncGenerator<Uint8Array, void, undefined> {
    const answer = await this.transport.open(call);
    try {
      if (!isSuccess(answer.status)) throw await problemOf(answer, call);
      onOpen?.();
      yield* answer.body;
    } finally {
      answer.close();
    }
  }
}

const asked = ({ method, path }: HttpCall): string => `${method} ${path}`;

const isSuccess = (status: number): boolean => status >= 200 && status < 300;

const problemOf = async ({ status, body }: OpenAnswer, call: HttpCall): Promise<Error> => {
  const parts: Uint8Array[] = [];
  for await (const part of body) parts.push(part);
  return errorFromProblem(status, textOfBytes(joinBytes(parts)), asked(call));
};

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
  for (const [key, value] of Object.entries(query))
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== undefined) search.append(key, String(one));
  const text = search.toString();
  return text === '' ? '' : `?${text}`;
};
