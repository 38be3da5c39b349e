import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';
import type { Recordings } from '../recordings/recordings.ts';
import type { PlayedStep } from '../recordings/scripted/script-player.ts';
import type { Scripts } from '../recordings/scripted/scripts.ts';
import { AnswerReader } from './answer-reader.ts';
import {
  type AccountedCall,
  type AccountParts,
  type Attempt,
  CallAccount,
  replayUpstream,
} from './call-account.ts';
import type { Changes, RequestFields } from './dialect.ts';
import { applyEdits } from './dialects/fields.ts';
import { EventFilter } from './event-filter.ts';
import { toClient, toUpstream } from './headers.ts';
import { type Answer, relay } from './relay.ts';
import { sendError } from './send-error.ts';
import { NoAnswer, type UpstreamConnections } from './upstream-request.ts';
import type { Choice, Upstream } from './upstreams.ts';
import { noUsage } from './usage.ts';

export interface CallParts extends AccountParts {
  readonly connections: UpstreamConnections;
  readonly recordings?: Recordings;
  readonly scripts: Scripts;
  keyOf(secretName: string): Promise<string>;
}

export interface CallQuestion extends AccountedCall {
  /** Path and query, without a key. */
  readonly path: string;
  readonly fields: RequestFields;
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
  readonly #account: CallAccount;

  constructor(parts: CallParts, question: CallQuestion, incoming: IncomingMessage, response: ServerResponse) {
    this.#parts = parts;
    this.#question = question;
    this.#account = new CallAccount(parts, question, this.#id);
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
    const { attempt, maxOutput } = await this.#account.begin(model, upstream, this.#gone.signal);
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
    this.#account.settleAnswer(attempt, reader, end, { status, firstByteMs });
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

  #noAnswer(attempt: Attempt, upstream: Upstream, error: NoAnswer): Try {
    const wasCancelled = this.#gone.signal.aborted;
    this.#account.settle(attempt, {
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
    this.#account.settle(attempt, {
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
