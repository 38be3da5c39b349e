import { readFileSync } from 'node:fs';
import { Readable } from 'node:stream';
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

export interface PlayedStep {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Readable;
}

/** Answers requests as a script says, in all four dialects. It needs neither a key nor a network. */
export class ScriptPlayer {
  readonly #script: Script;
  readonly #errors = new Map<ScriptStep, number>();
  #answered = 0;

  constructor(script: unknown) {
    const parsed = scriptSchema.safeParse(script);
    if (!parsed.success)
      throw new CoppiceError('invalid_argument', `the script is wrong: ${z.prettifyError(parsed.error)}`);
    this.#script = parsed.data;
  }

  /** `name` is how people call the file; errors do not say where it is. */
  static read(file: string, name: string): ScriptPlayer {
    try {
      return new ScriptPlayer(JSON.parse(readFileSync(file, 'utf8')));
    } catch (error) {
      if (error instanceof CoppiceError)
        throw new CoppiceError(error.code, `${name}: ${error.message}`, { cause: error });
      const { code } = error as NodeJS.ErrnoException;
      const why = code ?? (error as Error).message;
      const message = `the script ${name} cannot be read: ${why}`;
      throw new CoppiceError('invalid_argument', message, { cause: error });
    }
  }

  /** Undefined where no dialect has such a call. The signal ends a wait. */
  async answer(path: string, body: string, signal?: AbortSignal): Promise<PlayedStep | undefined> {
    const pathname = path.split('?', 1)[0]!;
    const dialect = dialects.find((one) => one.asked('POST', pathname) !== undefined);
    if (dialect === undefined) return undefined;
    const voice = voices[dialect.name];
    const spoken = { ...voice.read(path, JSON.parse(body) as Record<string, unknown>), bytes: body.length };
    if (dialect.asked('POST', pathname)?.purpose === 'count') {
      const tokens = Math.ceil(body.length / 4);
      return json(200, dialect.name === 'gemini' ? { totalTokens: tokens } : { input_tokens: tokens });
    }
    const step = this.#stepFor(spoken);
    await delay(step.delayMs, undefined, signal === undefined ? {} : { signal });
    const error = this.#error(step, dialect);
    if (error !== undefined) return error;
    this.#answered += 1;
    const said = sayStep(step, spoken, this.#answered);
    if (!spoken.stream) return json(200, voice.whole(said));
    return {
      status: 200,
      headers: { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' },
      body: Readable.from(spaced(voice.stream(said, spoken), step.partDelayMs), { objectMode: false }),
    };
  }

  #stepFor({ turns, results, tools }: SpokenRequest): ScriptStep {
    const { by, steps, aside } = this.#script;
    if (aside !== undefined && !tools) return aside;
    const number = { turn: turns, 'tool-results': results, order: this.#answered }[by];
    return steps[Math.min(number, steps.length - 1)]!;
  }

  #error(step: ScriptStep, dialect: Dialect): PlayedStep | undefined {
    if (step.error === undefined) return undefined;
    const times = this.#errors.get(step) ?? 0;
    if (times >= step.error.times) return undefined;
    this.#errors.set(step, times + 1);
    const { status, message, retryAfterS } = step.error;
    const { body } = dialect.error(status === 429 ? 'busy' : 'upstream', message);
    const retry: Record<string, string> =
      retryAfterS === undefined ? {} : { 'retry-after': String(retryAfterS) };
    return { ...whole(status, body), headers: { 'content-type': 'application/json', ...retry } };
  }
}

const whole = (status: number, body: string): PlayedStep => ({
  status,
  headers: { 'content-type': 'application/json' },
  body: Readable.from([Buffer.from(body)], { objectMode: false }),
});

const json = (status: number, body: unknown): PlayedStep => whole(status, JSON.stringify(body));

async function* spaced(events: Iterable<string>, partDelayMs: number): AsyncGenerator<Buffer> {
  for (const event of events) {
    yield Buffer.from(event);
    if (partDelayMs > 0) await delay(partDelayMs);
  }
}

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
