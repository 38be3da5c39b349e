import { CoppiceError } from '@coppice/protocol';
import type {
  Asked,
  Changes,
  Dialect,
  Edit,
  ErrorKind,
  Meter,
  ModelRequest,
  RequestFields,
} from '../dialect.ts';
import type { Wanted } from '../json-scanner.ts';
import { countOf, defined, fieldOf, type Usage } from '../usage.ts';
import {
  booleanField,
  countField,
  hasTools,
  modelName,
  setField,
  stringField,
  toolsField,
} from './fields.ts';
import { openaiError } from './openai-errors.ts';

const usage: Wanted = { take: 'value', name: 'usage' };
const model: Wanted = { take: 'value', name: 'model' };

/** OpenAI Responses. */
export const openaiResponses: Dialect = {
  name: 'openai-responses',

  asked(method, path): Asked | undefined {
    return method === 'POST' && path === '/v1/responses' ? { purpose: 'generate' } : undefined;
  },

  requestFields: {
    take: 'range',
    name: 'request',
    in: {
      model: { take: 'value', name: 'model' },
      stream: { take: 'value', name: 'stream' },
      tools: toolsField,
      max_output_tokens: { take: 'value', name: 'max_output_tokens' },
      background: { take: 'value', name: 'background' },
    },
  },

  readRequest(_asked, fields): ModelRequest {
    // Such an answer is made, and billed, after the request has ended.
    if (booleanField(fields, 'background'))
      throw new CoppiceError('invalid_argument', 'answers in the background cannot be metered', {
        hint: 'Leave `background` out.',
      });
    return {
      model: modelName(stringField(fields, 'model')),
      stream: booleanField(fields, 'stream'),
      maxOutput: countField(fields, 'max_output_tokens'),
      hasTools: hasTools(fields),
    };
  },

  path: (path) => path,

  edits(fields: RequestFields, _request: ModelRequest, changes: Changes): readonly Edit[] {
    const edits: Edit[] = [];
    if (changes.model !== undefined) edits.push(setField(fields, 'model', changes.model, 'request'));
    if (changes.maxOutput !== undefined)
      edits.push(setField(fields, 'max_output_tokens', changes.maxOutput, 'request'));
    return edits;
  },

  answerFields: {
    in: {
      model,
      usage,
      response: { in: { model, usage } },
      // Text, thoughts and arguments of tools alike.
      delta: { take: 'length', name: 'text' },
      output: {
        in: { '*': { in: { content: { in: { '*': { in: { text: { take: 'length', name: 'text' } } } } } } } },
      },
    },
  },

  meter: () => new ResponsesMeter(),

  error(kind: ErrorKind, message: string) {
    const answer = openaiError(kind, message);
    // Codex retries a 402 five times and stops at this one.
    return kind === 'budget' ? { ...answer, status: 429, headers: { 'x-should-retry': 'false' } } : answer;
  },

  keyHeaders: (key) => ({ authorization: `Bearer ${key}` }),
};

/** Only the last event of a stream has a usage. Input includes what was cached, output includes reasoning. */
class ResponsesMeter implements Meter {
  usage: Partial<Usage> = {};
  isFinal = false;
  model: string | undefined;

  value(name: string, value: unknown): void {
    if (name === 'model' && typeof value === 'string') this.model ??= value;
    if (name !== 'usage' || typeof value !== 'object' || value === null) return;
    const input = countOf(fieldOf(value, 'input_tokens'));
    const output = countOf(fieldOf(value, 'output_tokens'));
    if (input === undefined || output === undefined) return;
    const cached = Math.min(input, countOf(fieldOf(value, 'input_tokens_details', 'cached_tokens')) ?? 0);
    this.usage = {
      input: input - cached,
      cacheRead: cached,
      output,
      ...defined('reasoning', countOf(fieldOf(value, 'output_tokens_details', 'reasoning_tokens'))),
    };
    this.isFinal = true;
  }
}
