import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';
import { z } from 'zod';
import type { Dialect, DialectName } from '../../models/dialect.ts';
import { dialects } from '../../models/dialects/index.ts';
import { noUsage, type Usage } from '../../models/usage.ts';
import { anthropicVoice } from './anthropic-voice.ts';
import { chatVoice } from './chat-voice.ts';
import { geminiVoice } from './gemini-voice.ts';
import { responsesVoice } from './responses-voice.ts';
import type { Said, SpokenRequest, Voice } from './said.ts';
import { type Script, type ScriptStep, scriptSchema } from './script.ts';

const voices: Readonly<Record<DialectName, Voice>> = {
  anthropic: anthropicVoice,
  'openai-responses': responsesVoice,
  'openai-chat': chatVoice,
  gemini: geminiVoice,
};

/** What it was asked, for tests: who looks at it sees what a vendor would. */
export interface Heard {
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

/** A model server that says what a file tells it to, in all four dialects. It needs neither a key nor a network. */
export class ScriptedUpstream implements AsyncDisposable {
  readonly #script: Script;
  readonly #server: Server;
  readonly #errors = new Map<ScriptStep, number>();
  readonly #onHeard: (heard: Heard) => void;
  #answered = 0;

  constructor(script: unknown, onHeard: (heard: Heard) => void = () => {}) {
    const parsed = scriptSchema.safeParse(script);
    if (!parsed.success)
      throw new CoppiceError('invalid_argument', `the script is wrong: ${z.prettifyError(parsed.error)}`);
    this.#script = parsed.data;
    this.#onHeard = onHeard;
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch(() => response.destroy());
    });
  }

  /** Listens on loopback; returns its address. */
  async listen(port = 0): Promise<string> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, '127.0.0.1', resolve);
    });
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url ?? '/';
    let body = '';
    for await (const chunk of request.setEncoding('utf8')) body += chunk;
    this.#onHeard({ path, headers: request.headers, body });
    const pathname = path.split('?', 1)[0]!;
    const dialect = dialects.find((one) => one.asked(request.method ?? '', pathname) !== undefined);
    if (dialect === undefined) {
      response.writeHead(404).end();
      return;
    }
    const voice = voices[dialect.name];
    const spoken = { ...voice.read(path, JSON.parse(body) as Record<string, unknown>), bytes: body.length };
    if (dialect.asked('POST', pathname)?.purpose === 'count') {
      const tokens = Math.ceil(body.length / 4);
      json(response, dialect.name === 'gemini' ? { totalTokens: tokens } : { input_tokens: tokens });
      return;
    }
    const turn = this.#script.by === 'turn' ? spoken.turns : this.#answered;
    const step = this.#script.steps[Math.min(turn, this.#script.steps.length - 1)]!;
    await delay(step.delayMs);
    if (this.#fails(step, dialect, response)) return;
    this.#answered += 1;
    const said = sayStep(step, spoken, this.#answered);
    if (!spoken.stream) json(response, voice.whole(said));
    else await speak(response, voice.stream(said, spoken), step.partDelayMs);
  }

  #fails(step: ScriptStep, dialect: Dialect, response: ServerResponse): boolean {
    if (step.error === undefined) return false;
    const times = this.#errors.get(step) ?? 0;
    if (times >= step.error.times) return false;
    this.#errors.set(step, times + 1);
    const { status, message, retryAfterS } = step.error;
    const { body } = dialect.error(status === 429 ? 'busy' : 'upstream', message);
    response.writeHead(status, {
      'content-type': 'application/json',
      ...(retryAfterS === undefined ? {} : { 'retry-after': String(retryAfterS) }),
    });
    response.end(body);
    return true;
  }
}

const json = (response: ServerResponse, body: unknown): void => {
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
};

const speak = async (
  response: ServerResponse,
  events: Iterable<string>,
  partDelayMs: number,
): Promise<void> => {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
  for (const event of events) {
    if (response.destroyed) return;
    if (!response.write(event)) await taken(response);
    if (partDelayMs > 0) await delay(partDelayMs);
  }
  response.end();
};

const taken = (response: ServerResponse): Promise<void> =>
  new Promise((resolve) => {
    const done = (): void => {
      response.off('drain', done);
      response.off('close', done);
      resolve();
    };
    response.once('drain', done);
    response.once('close', done);
  });

const sayStep = (step: ScriptStep, request: SpokenRequest, number: number): Said => {
  const thinking = step.thinking ?? '';
  const text = step.text ?? '';
  const written = thinking.length + text.length + JSON.stringify(step.tools).length;
  const wanted = step.usage.output ?? Math.ceil(written / 4);
  const output = Math.min(wanted, request.maxOutput ?? wanted);
  const usage: Usage = {
    ...noUsage,
    ...step.usage,
    input: step.usage.input ?? Math.ceil(request.bytes / 4),
    output,
    reasoning: Math.min(output, step.usage.reasoning ?? 0),
  };
  const size = Math.max(1, Math.ceil(text.length / step.parts));
  const parts = Array.from({ length: Math.ceil(text.length / size) }, (_, index) =>
    text.slice(index * size, (index + 1) * size),
  );
  return {
    id: String(number).padStart(8, '0'),
    model: request.model,
    thinking,
    text,
    parts,
    tools: step.tools,
    usage,
    isCut: output < wanted,
  };
};
