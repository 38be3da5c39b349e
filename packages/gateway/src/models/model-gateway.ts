import type { IncomingMessage, ServerResponse } from 'node:http';
import type { GatewayEvent } from '@coppice/protocol';
import { CoppiceError, type ErrorCode, errorKinds as errorTable } from '@coppice/protocol/errors';
import type { Budgets } from '../budgets/budgets.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Prices } from '../prices/prices.ts';
import type { Recordings } from '../recordings/recordings.ts';
import { Scripts } from '../recordings/scripted/scripts.ts';
import { BodyRoom } from './body-room.ts';
import type { Caller } from './caller.ts';
import type { Dialect, ErrorKind } from './dialect.ts';
import { anthropic } from './dialects/anthropic.ts';
import { gemini } from './dialects/gemini.ts';
import { dialects } from './dialects/index.ts';
import { openaiChat } from './dialects/openai-chat.ts';
import { RunHabits } from './habits.ts';
import type { Sightings } from './message-markers.ts';
import { type CallParts, ModelCall } from './model-call.ts';
import { modelListAnswer } from './model-list.ts';
import { findFields, RequestBody } from './request-body.ts';
import { sendError } from './send-error.ts';
import { UpstreamConnections } from './upstream-request.ts';
import type { Upstreams } from './upstreams.ts';

export interface GatewayParts {
  readonly ledger: Ledger;
  readonly budgets: Budgets;
  readonly prices: Prices;
  readonly upstreams: Upstreams;
  /** Keeps answers, or gives them instead of upstreams. */
  readonly recordings?: Recordings;
  /** What upstreams of the kind `script` say. */
  readonly scripts?: Scripts;
  /** The key of an upstream, by the name of its secret. */
  keyOf(secretName: string): Promise<string>;
  readonly sightings: Sightings;
  emit(event: GatewayEvent): void;
  readonly limits?: Partial<GatewayLimits>;
  now?(): number;
}

export interface GatewayLimits {
  readonly requestBytes: number;
  readonly callsAtOnce: number;
  readonly callsAtOncePerSandbox: number;
  /** Bytes of requests that are in memory: until the answer begins, as they may have to be sent again. */
  readonly bodyBytesAtOnce: number;
  readonly bodyBytesAtOncePerSandbox: number;
}

const usualLimits: GatewayLimits = {
  requestBytes: 64 * 1024 * 1024,
  callsAtOnce: 4_096,
  callsAtOncePerSandbox: 128,
  bodyBytesAtOnce: 512 * 1024 * 1024,
  bodyBytesAtOncePerSandbox: 128 * 1024 * 1024,
};

const errorKinds: Partial<Record<ErrorCode, ErrorKind>> = {
  invalid_argument: 'invalid',
  forbidden: 'forbidden',
  not_found: 'not_found',
  too_large: 'too_large',
  limit_reached: 'budget',
  rate_limited: 'busy',
};

/** Answers what libraries of model vendors ask for, and keeps account of it. */
export class ModelGateway {
  #parts: CallParts;
  readonly #room: BodyRoom;
  readonly #limits: GatewayLimits;
  readonly #running = new Map<string, number>();
  #runningInAll = 0;

  constructor(parts: GatewayParts) {
    this.#limits = { ...usualLimits, ...parts.limits };
    this.#room = new BodyRoom(this.#limits.bodyBytesAtOnce, this.#limits.bodyBytesAtOncePerSandbox);
    this.#parts = {
      ...parts,
      keyOf: (name) => parts.keyOf(name),
      emit: (event) => parts.emit(event),
      now: parts.now ?? Date.now,
      scripts: parts.scripts ?? new Scripts('.'),
      habits: new RunHabits(parts.ledger),
      connections: new UpstreamConnections(),
    };
  }

  /** For calls that begin from now on. Those that run go on as they began. */
  configure(changes: Partial<Pick<GatewayParts, 'upstreams' | 'prices' | 'recordings'>>): void {
    this.#parts = { ...this.#parts, ...changes };
  }

  /** Who calls was found out before, by network address and token. Never rejects: every failure is an answer. */
  async handle(request: IncomingMessage, response: ServerResponse, caller: Caller): Promise<void> {
    const { path, query } = targetOf(request);
    const method = request.method ?? 'GET';
    const dialect =
      dialects.find((one) => one.asked(method, path) !== undefined) ?? likelyDialect(request, path);
    try {
      if (method === 'GET' && this.#list(dialect, response, path, caller)) return;
      const asked = dialect.asked(method, path);
      if (asked === undefined)
        throw new CoppiceError('not_found', `the gateway does not answer ${method} ${path}`);
      await this.#counted(caller, async () => {
        const body = new RequestBody(
          (bytes) => this.#room.take(caller.sandbox, bytes),
          (bytes) => this.#room.give(caller.sandbox, bytes),
        );
        try {
          await body.read(request, this.#limits.requestBytes);
          const fields = findFields(dialect, body.bytes);
          const asks = dialect.readRequest(asked, fields);
          const call = { dialect, asked, caller, path: path + query, body, fields, request: asks };
          await new ModelCall(this.#parts, call, request, response).run();
        } finally {
          body.letGo();
        }
      });
    } catch (error) {
      this.#refuse(dialect, response, caller, error);
    }
  }

  /** Ends the connections to upstreams that nobody uses. */
  close(): void {
    this.#parts.connections.close();
  }

  /** Says whether it was a question for models. */
  #list(dialect: Dialect, response: ServerResponse, path: string, caller: Caller): boolean {
    const answer = modelListAnswer(path, dialect.name, () => this.#parts.upstreams.names(caller));
    if (answer === undefined) return false;
    if (answer.status === 404) throw new CoppiceError('not_found', `there is no model ${answer.model} here`);
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify(answer.body));
    return true;
  }

  async #counted(caller: Caller, work: () => Promise<void>): Promise<void> {
    const own = this.#running.get(caller.sandbox) ?? 0;
    if (own >= this.#limits.callsAtOncePerSandbox || this.#runningInAll >= this.#limits.callsAtOnce)
      throw new CoppiceError(
        'rate_limited',
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
    const message = known === undefined ? 'the gateway failed' : sentence(known);
    const { sandbox, run = null, agent = null, project = null } = caller;
    const reason = known?.code ?? 'internal';
    this.#parts.emit({ type: 'model.refused', sandbox, run, agent, project, reason, message });
    if (!response.headersSent) response.setHeader('connection', 'close'); // what is left of the request is not read
    sendError(dialect, response, kind, message);
  }
}

/** The message, and the hint where it says more than the code does. */
const sentence = (error: CoppiceError): string =>
  error.hint === errorTable[error.code].hint ? error.message : `${error.message}. ${error.hint}`;

/** A key in the query, as Gemini's clients may send it, goes no further. */
const targetOf = (request: IncomingMessage): { readonly path: string; readonly query: string } => {
  const [path, search] = (request.url ?? '/').split('?', 2);
  const query = new URLSearchParams(search ?? '');
  query.delete('key');
  return { path: path!, query: query.size === 0 ? '' : `?${query}` };
};

/** Whose forms a client knows, where the path does not say it. */
const likelyDialect = (request: IncomingMessage, path: string): Dialect => {
  if (request.headers['anthropic-version'] !== undefined) return anthropic;
  const isGemini = path.startsWith('/v1beta/') || request.headers['x-goog-api-key'] !== undefined;
  return isGemini ? gemini : openaiChat;
};
