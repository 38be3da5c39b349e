import type { IncomingMessage, ServerResponse } from 'node:http';
import { CoppiceError, type ErrorCode } from '@coppice/protocol';
import type { Budgets } from '../budgets/budgets.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Prices } from '../prices/prices.ts';
import type { Caller } from './caller.ts';
import type { Dialect, ErrorKind } from './dialect.ts';
import { anthropic } from './dialects/anthropic.ts';
import { gemini } from './dialects/gemini.ts';
import { dialects } from './dialects/index.ts';
import { openaiChat } from './dialects/openai-chat.ts';
import type { ModelEvent } from './events.ts';
import { RunHabits } from './habits.ts';
import { type CallParts, ModelCall } from './model-call.ts';
import { findFields, readBody } from './request-body.ts';
import { sendError } from './send-error.ts';
import { UpstreamConnections } from './upstream-request.ts';
import type { Upstreams } from './upstreams.ts';

export interface GatewayParts {
  readonly ledger: Ledger;
  readonly budgets: Budgets;
  readonly prices: Prices;
  readonly upstreams: Upstreams;
  /** The key of an upstream, by the name of its secret. */
  keyOf(secretName: string): Promise<string>;
  emit(event: ModelEvent): void;
  readonly limits?: Partial<GatewayLimits>;
  now?(): number;
}

export interface GatewayLimits {
  readonly requestBytes: number;
  readonly callsAtOnce: number;
  readonly callsAtOncePerSandbox: number;
}

const usualLimits: GatewayLimits = {
  requestBytes: 64 * 1024 * 1024,
  callsAtOnce: 4_096,
  callsAtOncePerSandbox: 128,
};

const errorKinds: Partial<Record<ErrorCode, ErrorKind>> = {
  invalid_argument: 'invalid',
  forbidden: 'forbidden',
  not_found: 'not_found',
  too_large: 'too_large',
  limit_reached: 'busy',
};

/** Answers what libraries of model vendors ask for, and keeps account of it. */
export class ModelGateway {
  readonly #parts: CallParts;
  readonly #limits: GatewayLimits;
  readonly #running = new Map<string, number>();
  #runningInAll = 0;

  constructor(parts: GatewayParts) {
    this.#limits = { ...usualLimits, ...parts.limits };
    this.#parts = {
      ...parts,
      keyOf: (name) => parts.keyOf(name),
      emit: (event) => parts.emit(event),
      now: parts.now ?? Date.now,
      habits: new RunHabits(parts.ledger),
      connections: new UpstreamConnections(),
    };
  }

  /** Who calls was found out before, by network address and token. Never rejects: every failure is an answer. */
  async handle(request: IncomingMessage, response: ServerResponse, caller: Caller): Promise<void> {
    const url = new URL(request.url ?? '/', 'http://gateway');
    const method = request.method ?? 'GET';
    const dialect =
      dialects.find((one) => one.asked(method, url.pathname) !== undefined) ??
      likelyDialect(request, url.pathname);
    try {
      const asked = dialect.asked(method, url.pathname);
      if (asked === undefined)
        throw new CoppiceError('not_found', `${method} ${url.pathname} is nothing that the gateway answers`);
      await this.#counted(caller, async () => {
        const body = await readBody(request, this.#limits.requestBytes);
        const fields = findFields(dialect, body);
        const question = {
          dialect,
          asked,
          caller,
          path: pathOf(url),
          body,
          fields,
          request: dialect.readRequest(asked, fields),
        };
        await new ModelCall(this.#parts, question, request, response).run();
      });
    } catch (error) {
      this.#refuse(dialect, response, caller, error);
    }
  }

  /** Ends the connections to upstreams that nobody uses. */
  close(): void {
    this.#parts.connections.close();
  }

  async #counted(caller: Caller, work: () => Promise<void>): Promise<void> {
    const own = this.#running.get(caller.sandbox) ?? 0;
    if (own >= this.#limits.callsAtOncePerSandbox || this.#runningInAll >= this.#limits.callsAtOnce)
      throw new CoppiceError(
        'limit_reached',
        'too many calls to models run at once; try again when one has ended',
      );
    this.#running.set(caller.sandbox, own + 1);
    this.#runningInAll += 1;
    try {
      await work();
    } finally {
      this.#runningInAll -= 1;
      const left = this.#running.get(caller.sandbox)! - 1;
      if (left === 0) this.#running.delete(caller.sandbox);
      else this.#running.set(caller.sandbox, left);
    }
  }

  #refuse(dialect: Dialect, response: ServerResponse, caller: Caller, error: unknown): void {
    if (response.destroyed) return;
    const known = error instanceof CoppiceError ? error : undefined;
    const kind = (known && errorKinds[known.code]) ?? 'upstream';
    // The text of an error that is not ours may say too much.
    const message = known === undefined ? 'the gateway failed' : known.message;
    this.#parts.emit({ type: 'model.refused', caller, reason: known?.code ?? 'internal', message });
    response.setHeader('connection', 'close'); // what is left of the request is not read
    sendError(dialect, response, kind, message);
  }
}

/** A key in the query, as Gemini's clients may send it, goes no further. */
const pathOf = (url: URL): string => {
  const query = new URLSearchParams(url.searchParams);
  query.delete('key');
  const rest = query.toString();
  return rest === '' ? url.pathname : `${url.pathname}?${rest}`;
};

/** Whose form of error a client knows that asked for nothing we answer. */
const likelyDialect = (request: IncomingMessage, path: string): Dialect => {
  if (request.headers['anthropic-version'] !== undefined) return anthropic;
  return path.startsWith('/v1beta/') ? gemini : openaiChat;
};
