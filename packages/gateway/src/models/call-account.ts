import { CoppiceError, type GatewayEvent } from '@coppice/protocol';
import type { Budgets } from '../budgets/budgets.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { type OfCall, type Outcome, settledEvent } from '../ledger/settlement.ts';
import type { Price, Prices } from '../prices/prices.ts';
import type { AnswerReader } from './answer-reader.ts';
import type { Caller } from './caller.ts';
import type { Asked, Dialect, ModelRequest } from './dialect.ts';
import type { RunHabits } from './habits.ts';
import { messagesIn, type Sightings } from './message-markers.ts';
import type { RelayEnd } from './relay.ts';
import type { RequestBody } from './request-body.ts';
import type { Upstream, Upstreams } from './upstreams.ts';
import { inputOf, noUsage, type Usage } from './usage.ts';

export interface AccountParts {
  readonly ledger: Ledger;
  readonly budgets: Budgets;
  readonly prices: Prices;
  readonly upstreams: Upstreams;
  readonly habits: RunHabits;
  readonly sightings: Sightings;
  emit(event: GatewayEvent): void;
  now(): number;
}

/** What is accounted: who asks for what. */
export interface AccountedCall {
  readonly dialect: Dialect;
  readonly asked: Asked;
  readonly caller: Caller;
  readonly body: RequestBody;
  readonly request: ModelRequest;
}

/** What became of a try. */
export interface Result {
  readonly usage: Usage;
  readonly estimated: boolean;
  readonly outcome: Outcome;
  readonly modelServed: string;
  readonly firstByteMs: number | null;
  readonly status: number | null;
}

/** One request to an upstream, as it stands in the ledger. */
export interface Attempt {
  /** In the ledger; undefined for what costs nothing. */
  readonly id: number | undefined;
  readonly about: OfCall;
  readonly vendor: string | undefined;
  readonly isScript: boolean;
  readonly inputEstimate: number;
  isSettled: boolean;
  elapsedMs(): number;
}

/** Stands in the ledger where a recording answered. */
export const replayUpstream: Upstream = {
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

/** The ledger, the budgets and the events of one call: each of its tries is written down before it leaves, and settled once. */
export class CallAccount {
  readonly #parts: AccountParts;
  readonly #call: AccountedCall;
  readonly #id: string;
  #attempts = 0;

  constructor(parts: AccountParts, call: AccountedCall, id: string) {
    this.#parts = parts;
    this.#call = call;
    this.#id = id;
  }

  /** Writes the call down before it leaves, with as much of the budgets as it can take. */
  async begin(
    model: string,
    upstream: Upstream,
    gone: AbortSignal,
  ): Promise<{ attempt: Attempt; maxOutput: number | undefined }> {
    const { caller, dialect, request, body, asked } = this.#call;
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
      gone,
    );
    return { attempt: start(id), maxOutput: granted < asks ? Math.floor(granted / answers) : undefined };
  }

  /** By what the upstream reported, or where it did not, by what was seen. */
  settleAnswer(
    attempt: Attempt,
    reader: AnswerReader,
    end: RelayEnd,
    facts: { readonly status: number; readonly firstByteMs: number },
  ): void {
    const { caller } = this.#call;
    const { habits } = this.#parts;
    const isKnown = reader.isFinal;
    const reported: Usage = { ...noUsage, ...reader.usage };
    if (isKnown && attempt.id !== undefined)
      habits.learn(caller, this.#call.body.length, reported, reader.textBytes);
    const usage: Usage = isKnown
      ? reported
      : {
          ...reported,
          input: reader.usage.input ?? attempt.inputEstimate,
          output: Math.max(reported.output, habits.outputEstimate(caller, reader.textBytes)),
        };
    this.settle(attempt, {
      usage,
      estimated: !isKnown,
      outcome: end === 'whole' ? 'complete' : end,
      modelServed: reader.model ?? attempt.about.model,
      firstByteMs: facts.firstByteMs,
      status: facts.status,
    });
  }

  settle(attempt: Attempt, result: Result): void {
    if (attempt.id === undefined || attempt.isSettled) return;
    attempt.isSettled = true;
    const { prices, ledger, budgets, emit } = this.#parts;
    const id = attempt.id;
    const question = { vendor: attempt.vendor, usage: result.usage, atMs: this.#parts.now() };
    // The name that the upstream answers with may be one that nobody knows; then the one asked for counts.
    const price =
      attempt.about.upstream === replayUpstream.name
        ? free('replay')
        : (prices.price({ ...question, model: result.modelServed }) ??
          prices.price({ ...question, model: attempt.about.model }) ??
          (attempt.isScript ? free('script') : undefined));
    const costMicros = price?.micros ?? null;
    const settlement = {
      ...result,
      priceVersion: price?.version ?? 'none',
      costMicros,
      durationMs: attempt.elapsedMs(),
    };
    ledger.together(() => {
      ledger.settle(id, settlement);
      emit(settledEvent(attempt.about, settlement));
      budgets.settle(id, inputOf(result.usage) + result.usage.output, costMicros ?? 0);
    });
  }

  #about(): Omit<OfCall, 'model' | 'upstream'> {
    const { sandbox, run = null, agent = null, project = null } = this.#call.caller;
    return { sandbox, run, agent, project, call: this.#id, attempt: this.#attempts };
  }

  /** With the messages that it carries: that a request of an agent at work holds them shows that they have arrived. */
  #tellRequest(about: OfCall): void {
    const { dialect, request, body } = this.#call;
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
}
