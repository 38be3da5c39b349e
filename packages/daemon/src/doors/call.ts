import type { RouteName, Routes } from '@coppice/protocol';
import type { z } from 'zod';
import type { Principal, Progress } from '../services.ts';
import type { MessageSocket } from './http/message-socket.ts';

type Parsed<R, K extends string> = R extends { readonly [P in K]: infer S extends z.ZodType }
  ? z.output<S>
  : undefined;

/** One request, validated: a handler calls one service with it and gives back the answer. */
export interface Call<N extends RouteName> {
  readonly params: Parsed<Routes[N], 'params'>;
  readonly query: Parsed<Routes[N], 'query'>;
  readonly body: Parsed<Routes[N], 'body'>;
  /** Who calls; undefined where nobody needs to be known. */
  readonly principal: Principal | undefined;
  /** The body of a route that uploads. */
  readonly upload: AsyncIterable<Uint8Array>;
  /** Aborted when the caller goes away. */
  readonly signal: AbortSignal;
  /** Told how far a long operation is, where the door can pass that on. */
  readonly progress: Progress | undefined;
  /** The session of agents that calls; only the MCP door has sessions. */
  readonly session: string | undefined;
  /** The sequence number a reconnecting reader of server-sent events had seen. */
  readonly lastEventId: string | undefined;
}

export interface ByteAnswer {
  readonly bytes: AsyncIterable<Uint8Array>;
  readonly contentType: string;
  readonly sizeBytes?: number;
  readonly fileName?: string;
}

export interface ServerEvent {
  readonly id?: string;
  readonly event?: string;
  readonly data: unknown;
}

type Answered<N extends RouteName> = Routes[N]['answer'] extends 'json'
  ? Promise<Parsed<Routes[N], 'result'>>
  : Routes[N]['answer'] extends 'text'
    ? Promise<string>
    : Routes[N]['answer'] extends 'bytes'
      ? Promise<ByteAnswer>
      : Routes[N]['answer'] extends 'events'
        ? Promise<AsyncIterable<ServerEvent>>
        : Promise<void>;

type Handler<N extends RouteName> = Routes[N]['answer'] extends 'socket'
  ? (call: Call<N>, socket: MessageSocket) => Promise<void>
  : (call: Call<N>) => Answered<N>;

export type Handlers = { readonly [N in RouteName]: Handler<N> };
