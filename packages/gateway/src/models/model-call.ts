import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { CoppiceError, type GatewayEvent } from '@coppice/protocol';
import type { Budgets } from '../budgets/budgets.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { type OfCall, type Outcome, settledEvent } from '../ledger/settlement.ts';
import type { Price, Prices } from '../prices/prices.ts';
import type { Recordings } from '../recordings/recordings.ts';
import type { PlayedStep } from '../recordings/scripted/script-player.ts';
import type { Scripts } from '../recordings/scripted/scripts.ts';
import { AnswerReader } from './answer-reader.ts';
import type { Caller } from './caller.ts';
import type { Asked, Changes, Dialect, ModelRequest, RequestFields } from './dialect.ts';
import { applyEdits } from './dialects/fields.ts';
import { EventFilter } from './event-filter.ts';
import type { RunHabits } from './habits.ts';
import { toClient, toUpstream } from './headers.ts';
import { messagesIn, type Sightings } from './message-markers.ts';
import { type Answer, type RelayEnd, relay } from './relay.ts';
import type { RequestBody } from './request-body.ts';
import { sendError } from './send-error.ts';
import { NoAnswer, type UpstreamConnections } from './upstream-request.ts';
import type { Choice, Upstream, Upstreams } from './upstreams.ts';
import { inputOf, noUsage, type Usage } from './usage.ts';

export interface CallParts {
  readonly ledger: Ledger;
  readonly budgets: Budgets;
  readonly prices: Prices;
  readonly upstreams: Upstreams;
  readonly connections: UpstreamConnections;
  readonly recordings?: Recordings;
  readonly scripts: Scripts;
  readonly habits: RunHabits;
  readonly sightings: Sightings;
  keyOf(secretName: string): Promise<string>;
  emit(event: GatewayEvent): void;
  now(): number;
}

export interface CallQuestion {
  readonly dialect: Dialect;
  readonly asked: Asked;
  readonly caller: Caller;
  /** Path and query, without a key. */
  readonly path: string;
  readonly body: RequestBody;
  readonly fields: RequestFields;
  readonly request: ModelRequest;
}

/** What one try came to: it answered the client, or the next one may be tried. */
type Try =
  | { readonly done: true }
  /** Without a time to wait, this upstream is not tried again. */
  | { readonly done: false; readonly waitMs: number | undefined; readonly why: string };

interface Where {
  readonly upstream: Upstream;
  readonly isLastTry: boolean;
  readonly isLastUpstream: boolean;
  readonly replay?: Answer;
}

/** Stands in the ledger where a recording answered. */
const replayUpstream: Upstream = {
  name: 'replay',
  kind: 'openai-compatible',
  models: ['*'],
  retries: 0,
  max_retry_wait_s: 0,
  first_byte_timeout_s: 3_600,
  stall_timeout_s: 3_600,
};
/** Nobody is asked, so nobody charges. */
const free = (version: string): Price => ({ micros: 0, version });

/** What an answer can have where the request does not say: the longest that a vendor gives. */
const longestAnswer = 128_000;

/** Statuses after which the same upstream may answer a little later. */
const again = new Set([408, 409, 429, 500, 502, 503, 504, 529]);

/** Statuses that are about this upstream and its key, and not about the request. */
const elsewhere = new Set([401, 402, 403, 404]);

/** One call of a client, from the choice of an upstream to the last byte of its answer. */
export class ModelCall {
  readonly #parts: CallParts;
  readonly #question: CallQuestion;
  readonly #incoming: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #gone = new AbortController();
  readonly #id = `call_${randomBytes(12).toString('hex')}`;
  #attempts = 0;

  constructor(parts: CallParts, question: CallQuestion, incoming: IncomingMessage, response: ServerResponse) {
    this.#parts = parts;
    this.#question = question;
    this.#incoming = incoming;
    this.#response = response;
  }

  async run(): Promise<void> {
    const { dialect, request, caller, asked } = this.#question;
    const leave = (): void => this.#gone.abort();
    this.#response.once('close', leave);
    if (this.#response.destroyed) leave();
    try {
      if (this.#parts.recordings?.isReplay === true && asked.purpose === 'generate') await this.#replay();
      else await this.#tryAll(this.#parts.upstreams.choose(dialect.name, request.model, caller));
    } finally {
      this.#response.off('close', leave);
    }
  }

  /** Answers from a recording. No upstream is asked, so it costs nothing; its tokens count all the same. */
  async #replay(): Promise<void> {
    const { dialect, path, body, request } = this.#question;
    const played = this.#parts.recordings!.play(dialect.name, path, body.bytes);
    if (played === undefined)
      throw new CoppiceError('not_found', 'no recording fits this request', {
        hint: 'Record it first, or play recordings back by their order.',
      });
    const replay: Answer = {
      status: played.status,
      headers: {
        'content-type': played.contentType,
        'x-coppice-call': this.#id,
        'x-coppice-replay': played.name,
      },
      contentType: played.contentType,
      retryAfterMs: 0,
      body: played.body,
    };
    await this.#try(request.model, {
      upstream: replayUpstream,
      isLastTry: true,
      isLastUpstream: true,
      replay,
    });
  }

  async #tryAll(choice: Choice): Promise<void> {
    let why = '';
    for (const [index, upstream] of choice.upstreams.entries()) {
      const isLastUpstream = index === choice.upstreams.length - 1;
      for (let retry = 0; retry <= upstream.retries; retry += 1) {
        const isLastTry = retry === upstream.retries;
        const outcome = await this.#try(choice.model, { upstream, isLastTry, isLastUpstream });
        if (outcome.done || this.#gone.signal.aborted) return;
        why = outcome.why;
        if (isLastTry || outcome.waitMs === undefined) break;
        // Where another upstream is left, it is quicker than a long wait.
        if (!isLastUpstream && outcome.waitMs > 1_000) break;
        if (!(await this.#wait(outcome.waitMs))) return;
      }
    }
    sendError(this.#question.dialect, this.#response, 'upstream', why);
  }

  async #try(model: string, where: Where): Promise<Try> {
    const { upstream } = where;
    const { request } = this.#question;
    const key = await this.#key(upstream);
    const { attempt, maxOutput } = await this.#begin(model, upstream);
    let isSent = false;
    try {
      const changes: Changes = {
        ...(model === request.model ? {} : { model }),
        ...(maxOutput === undefined ? {} : { maxOutput }),
        maxOutputField: upstream.kind === 'openai' ? 'max_completion_tokens' : 'max_tokens',
      };
      const answer = where.replay ?? (await this.#send(upstream, key, changes));
      isSent = true;
      if (attempt.id !== undefined)
        this.#parts.emit({ type: 'model.first_byte', ...attempt.about, after_ms: attempt.elapsedMs() });
      if (answer.status < 200 || answer.status > 299) return await this.#failed(attempt, where, answer);
      await this.#passOn(attempt, upstream, answer, Object.values(key));
      return { done: true };
    } catch (error) {
      const known = error instanceof NoAnswer ? error : new NoAnswer('the gateway failed', !isSent, error);
      const outcome = this.#noAnswer(attempt, upstream, known);
      // Nothing is sent again once an answer has begun.
      if (isSent) throw error;
      return outcome;
    }
  }

  async #send(upstream: Upstream, key: Readonly<Record<string, string>>, changes: Changes): Promise<Answer> {
    const { dialect, request, fields, body, path } = this.#question;
    const bytes = applyEdits(body.bytes, dialect.edits(fields, request, changes));
    if (upstream.script !== undefined)
      return this.#perform(upstream.script, dialect.path(path, changes), bytes);
    const answer = await this.#parts.connections.send({
      url: this.#parts.upstreams.baseUrl(upstream) + dialect.path(path, changes),
      headers: toUpstream(this.#incoming, key, bytes.length),
      body: bytes,
      firstByteTimeoutMs: upstream.first_byte_timeout_s * 1_000,
      signal: this.#gone.signal,
    });
    return {
      status: answer.statusCode ?? 502,
      headers: toClient(answer, this.#id),
      contentType: String(answer.headers['content-type'] ?? ''),
      retryAfterMs: retryAfterMs(answer, this.#parts.now()),
      body: answer,
    };
  }

  /** Answers from a script. What is wrong with it is for whoever wrote it, so it is said. */
  async #perform(script: string, path: string, body: Buffer): Promise<Answer> {
    let played: PlayedStep | undefined;
    try {
      played = await this.#parts.scripts.of(script).answer(path, body.toString('utf8'), this.#gone.signal);
    } catch (error) {
      throw new NoAnswer((error as Error).message, true, error);
    }
    if (played === undefined) throw new NoAnswer('no script answers this', true);
    return {
      status: played.status,
      headers: { ...played.headers, 'x-coppice-call': this.#id },
      contentType: played.headers['content-type'] ?? '',
      retryAfterMs: Number(played.headers['retry-after'] ?? 0.5) * 1_000,
      body: played.body,
    };
  }

  /** Passes a good answer on, and writes down what it took before it ends. */
  async #passOn(
    attempt: Attempt,
    upstream: Upstream,
    answer: Answer,
    secrets: readonly string[],
  ): Promise<void> {
    const { dialect, request, fields, body, path, asked } = this.#question;
    const firstByteMs = attempt.elapsedMs();
    const { status, contentType } = answer;
    const recorder =
      asked.purpose === 'count'
        ? undefined
        : this.#parts.recordings?.record(dialect.name, request.model, path, body.bytes);
    body.letGo();
    const reader = new AnswerReader(dialect, contentType);
    const isAdded = dialect.isAddedEvent?.(request, fields);
    if (isAdded !== undefined) delete answer.headers['content-length'];
    this.#response.writeHead(status, answer.headers);
    this.#response.flushHeaders();
    const end = await relay(answer.body, this.#response, {
      reader,
      ...(recorder === undefined ? {} : { onChunk: recorder.chunk }),
      filter: isAdded === undefined ? undefined : new EventFilter(isAdded),
      stallTimeoutMs: upstream.stall_timeout_s * 1_000,
    });
    this.#settleAnswer(attempt, reader, end, { status, firstByteMs });
    if (end === 'whole' && recorder !== undefined)
      this.#save(() => recorder.save({ status, contentType, secrets: secrets.map(withoutBearer) }));
    if (end === 'whole') this.#response.end();
    else this.#response.destroy();
  }

  /** A recording that cannot be written takes no answer from anybody. */
  #save(save: () => void): void {
    try {
      save();
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      const { sandbox } = this.#question.caller;
      this.#parts.emit({ type: 'recording.failed', call: this.#id, sandbox, message });
    }
  }

  async #key(upstream: Upstream): Promise<Readonly<Record<string, string>>> {
    if (upstream.secret === undefined) return {};
    const key = await this.#parts.keyOf(upstream.secret).catch((cause: unknown) => {
      throw new CoppiceError('unavailable', `the key of the upstream ${upstream.name} is not there`, {
        hint: 'Set its secret.',
        cause,
      });
    });
    return this.#question.dialect.keyHeaders(key);
  }

  /** Writes the call down before it leaves, with as much of the budgets as it can take. */
  async #begin(
    model: string,
    upstream: Upstream,
  ): Promise<{ attempt: Attempt; maxOutput: number | undefined }> {
    const { caller, dialect, request, body, asked } = this.#question;
    const { habits, ledger, budgets, upstreams } = this.#parts;
    this.#attempts += 1;
    const about = { ...this.#about(), model, upstream: upstream.name };
    const vendor = upstreams.vendor(upstream, dialect.name);
    const inputEstimate = habits.inputEstimate(caller, body.length);
    const start = (id: number | undefined): Attempt => {
      const began = performance.now();
      const elapsedMs = (): number => Math.round(performance.now() - began);
      const isScript = upstream.kind === 'script';
      return { id, about, vendor, isScript, inputEstimate, isSettled: false, elapsedMs };
    };
    if (asked.purpose === 'count') return { attempt: start(undefined), maxOutput: undefined };
    const answers = Math.max(1, request.answers ?? 1);
    const usualOutput = habits.usualOutput(caller) * answers;
    const asks = (request.maxOutput ?? longestAnswer) * answers;
    const priceOf = (output: number): Price | undefined =>
      upstream === replayUpstream
        ? free('replay')
        : this.#price(model, upstream, vendor, { ...noUsage, input: inputEstimate, output });
    const inputPrice = priceOf(0);
    const millionOutputs = priceOf(1_000_000);
    const outputEstimate = Math.min(usualOutput, asks);
    let granted = asks;
    const id = await budgets.reserve(
      {
        caller,
        inputTokens: inputEstimate,
        usualOutput,
        maxOutput: asks,
        leastOutput: (request.leastOutput ?? 256) * answers,
        price: inputPrice && {
          inputMicros: inputPrice.micros,
          microsPerOutput: (millionOutputs!.micros - inputPrice.micros) / 1_000_000,
        },
      },
      (grant) => {
        granted = grant.maxOutput;
        return ledger.together(() => {
          this.#tellRequest(about);
          return ledger.begin({
            call: this.#id,
            attempt: this.#attempts,
            caller,
            dialect: dialect.name,
            modelAsked: request.model,
            model,
            upstream: upstream.name,
            requestBytes: body.length,
            inputEstimate,
            outputEstimate,
            costEstimate: priceOf(outputEstimate)?.micros ?? null,
            heldTokens: grant.heldTokens,
            heldMicros: grant.heldMicros,
            priceVersion: inputPrice?.version ?? 'none',
          });
        });
      },
      this.#gone.signal,
    );
    return { attempt: start(id), maxOutput: granted < asks ? Math.floor(granted / answers) : undefined };
  }

  #about(): Omit<OfCall, 'model' | 'upstream'> {
    const { sandbox, run = null, agent = null, project = null } = this.#question.caller;
    return { sandbox, run, agent, project, call: this.#id, attempt: this.#attempts };
  }

  /** With the messages that it carries: that a request of an agent at work holds them shows that they have arrived. */
  #tellRequest(about: OfCall): void {
    const { dialect, request, body } = this.#question;
    const { sightings, emit } = this.#parts;
    const tools = request.hasTools;
    const messages = tools ? messagesIn(body.bytes) : [];
    const fresh = sightings.add(about.sandbox, messages);
    emit({ type: 'model.request', ...about, dialect: dialect.name, tools, messages, new_messages: fresh });
  }

  #price(model: string, upstream: Upstream, vendor: string | undefined, usage: Usage): Price | undefined {
    const { prices, now } = this.#parts;
    const price =
      prices.price({ model, vendor, usage, atMs: now() }) ??
      (upstream.kind === 'script' ? free('script') : undefined);
    if (price === undefined && prices.unknown === 'refuse')
      throw new CoppiceError('forbidden', `the price of the model ${model} is not known`, {
        hint: 'Add it to the file of prices, or count tokens alone for such models.',
      });
    return price;
  }

  #noAnswer(attempt: Attempt, upstream: Upstream, error: NoAnswer): Try {
    const wasCancelled = this.#gone.signal.aborted;
    this.#settle(attempt, {
      // What was sent may have been billed; what never arrived was not.
      usage: error.isUnsent ? noUsage : { ...noUsage, input: attempt.inputEstimate },
      estimated: !error.isUnsent,
      outcome: wasCancelled ? 'cancelled' : error.isUnsent ? 'unreachable' : 'cut',
      modelServed: attempt.about.model,
      firstByteMs: null,
      status: null,
    });
    return {
      done: false,
      waitMs: 250,
      why: `the upstream ${upstream.name} does not answer: ${error.message}`,
    };
  }

  /** An error of the upstream: tried again, tried elsewhere, or passed on as it is. */
  async #failed(attempt: Attempt, where: Where, answer: Answer): Promise<Try> {
    const { upstream, isLastTry, isLastUpstream } = where;
    const { status, retryAfterMs: waitMs } = answer;
    this.#settle(attempt, {
      usage: noUsage,
      estimated: false,
      outcome: 'failed',
      modelServed: attempt.about.model,
      firstByteMs: attempt.elapsedMs(),
      status,
    });
    const mayWait = again.has(status) && !isLastTry && waitMs <= upstream.max_retry_wait_s * 1_000;
    if (mayWait || (!isLastUpstream && (again.has(status) || elsewhere.has(status)))) {
      answer.body.destroy(); // it may be as long as it likes
      const why = `the upstream ${upstream.name} answers with status ${status}`;
      return { done: false, waitMs: mayWait ? waitMs : undefined, why };
    }
    // What an upstream says about the key is not for the sandbox, which has none.
    if (status === 401 || status === 403 || status < 400) {
      answer.body.destroy();
      const why =
        status < 400
          ? `the upstream ${upstream.name} answers with status ${status}`
          : `the upstream ${upstream.name} refuses the key of the gateway (status ${status})`;
      sendError(this.#question.dialect, this.#response, status < 400 ? 'upstream' : 'forbidden', why);
      return { done: true };
    }
    this.#response.writeHead(status, answer.headers);
    const end = await relay(answer.body, this.#response, {
      reader: new AnswerReader(this.#question.dialect, ''),
      filter: undefined,
      stallTimeoutMs: upstream.stall_timeout_s * 1_000,
    });
    if (end === 'whole') this.#response.end();
    else this.#response.destroy();
    return { done: true };
  }

  #settleAnswer(
    attempt: Attempt,
    reader: AnswerReader,
    end: RelayEnd,
    facts: { readonly status: number; readonly firstByteMs: number },
  ): void {
    const { caller } = this.#question;
    const { habits } = this.#parts;
    const isKnown = reader.isFinal;
    const reported: Usage = { ...noUsage, ...reader.usage };
    if (isKnown && attempt.id !== undefined)
      habits.learn(caller, this.#question.body.length, reported, reader.textBytes);
    const usage: Usage = isKnown
      ? reported
      : {
          ...reported,
          input: reader.usage.input ?? attempt.inputEstimate,
          output: Math.max(reported.output, habits.outputEstimate(caller, reader.textBytes)),
        };
    this.#settle(attempt, {
      usage,
      estimated: !isKnown,
      outcome: end === 'whole' ? 'complete' : end,
      modelServed: reader.model ?? attempt.about.model,
      firstByteMs: facts.firstByteMs,
      status: facts.status,
    });
  }

  #settle(
    attempt: Attempt,
    what: {
      readonly usage: Usage;
      readonly estimated: boolean;
      readonly outcome: Outcome;
      readonly modelServed: string;
      readonly firstByteMs: number | null;
      readonly status: number | null;
    },
  ): void {
    if (attempt.id === undefined || attempt.isSettled) return;
    attempt.isSettled = true;
    const { prices, ledger, budgets, emit } = this.#parts;
    const id = attempt.id;
    const question = { vendor: attempt.vendor, usage: what.usage, atMs: this.#parts.now() };
    // The name that the upstream answers with may be one that nobody knows; then the one asked for counts.
    const price =
      attempt.about.upstream === replayUpstream.name
        ? free('replay')
        : (prices.price({ ...question, model: what.modelServed }) ??
          prices.price({ ...question, model: attempt.about.model }) ??
          (attempt.isScript ? free('script') : undefined));
    const costMicros = price?.micros ?? null;
    const settlement = {
      ...what,
      priceVersion: price?.version ?? 'none',
      costMicros,
      durationMs: attempt.elapsedMs(),
    };
    ledger.together(() => {
      ledger.settle(id, settlement);
      emit(settledEvent(attempt.about, settlement));
      budgets.settle(id, inputOf(what.usage) + what.usage.output, costMicros ?? 0);
    });
  }

  /** Says whether somebody still waits for the answer. */
  async #wait(waitMs: number): Promise<boolean> {
    try {
      await delay(waitMs, undefined, { signal: this.#gone.signal });
      return true;
    } catch {
      return false;
    }
  }
}

interface Attempt {
  /** In the ledger; undefined for what costs nothing. */
  readonly id: number | undefined;
  readonly about: OfCall;
  readonly vendor: string | undefined;
  readonly isScript: boolean;
  readonly inputEstimate: number;
  isSettled: boolean;
  elapsedMs(): number;
}

const withoutBearer = (value: string): string => value.replace(/^Bearer /, '');

/** How long an upstream asks to wait: seconds or a date, or milliseconds as some vendors say it. */
const retryAfterMs = (answer: IncomingMessage, nowMs: number): number => {
  const ms = Number(answer.headers['retry-after-ms']);
  if (Number.isFinite(ms) && ms >= 0) return ms;
  const after = answer.headers['retry-after'];
  if (after === undefined) return 500;
  const seconds = Number(after);
  if (Number.isFinite(seconds)) return Math.max(0, seconds * 1_000);
  const date = Date.parse(after);
  return Number.isNaN(date) ? 500 : Math.max(0, date - nowMs);
};
