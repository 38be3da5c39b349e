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

const errors: Readonly<Record<ErrorKind, readonly [status: number, type: string]>> = {
  budget: [402, 'billing_error'],
  invalid: [400, 'invalid_request_error'],
  forbidden: [403, 'permission_error'],
  not_found: [404, 'not_found_error'],
  too_large: [413, 'request_too_large'],
  busy: [429, 'rate_limit_error'],
  upstream: [502, 'api_error'],
};

/** The vendor takes no thinking budget below this, and none that the longest answer does not exceed. */
const leastThinking = 1024;

const text: Wanted = { take: 'length', name: 'text' };
const usage: Wanted = { take: 'value', name: 'usage' };
const model: Wanted = { take: 'value', name: 'model' };

/** Anthropic Messages. */
export const anthropic: Dialect = {
  name: 'anthropic',

  asked(method, path): Asked | undefined {
    if (method !== 'POST') return undefined;
    if (path === '/v1/messages') return { purpose: 'generate' };
    return path === '/v1/messages/count_tokens' ? { purpose: 'count' } : undefined;
  },

  requestFields: {
    take: 'range',
    name: 'request',
    in: {
      model: { take: 'value', name: 'model' },
      stream: { take: 'value', name: 'stream' },
      tools: toolsField,
      max_tokens: { take: 'value', name: 'max_tokens' },
      thinking: { in: { budget_tokens: { take: 'value', name: 'thinking.budget_tokens' } } },
    },
  },

  readRequest(_asked, fields): ModelRequest {
    const isThinking = countField(fields, 'thinking.budget_tokens') !== undefined;
    return {
      ...(isThinking ? { leastOutput: 2 * leastThinking } : {}),
      model: modelName(stringField(fields, 'model')),
      stream: booleanField(fields, 'stream'),
      maxOutput: countField(fields, 'max_tokens'),
      hasTools: hasTools(fields),
    };
  },

  path: (path) => path,

  edits(fields: RequestFields, _request: ModelRequest, changes: Changes): readonly Edit[] {
    const edits: Edit[] = [];
    if (changes.model !== undefined) edits.push(setField(fields, 'model', changes.model, 'request'));
    if (changes.maxOutput !== undefined) {
      edits.push(setField(fields, 'max_tokens', changes.maxOutput, 'request'));
      const thinking = countField(fields, 'thinking.budget_tokens');
      if (thinking !== undefined && thinking >= changes.maxOutput) {
        const lowered = Math.max(leastThinking, Math.floor(changes.maxOutput / 2));
        edits.push(setField(fields, 'thinking.budget_tokens', lowered, 'request'));
      }
    }
    return edits;
  },

  answerFields: {
    in: {
      model,
      usage,
      message: { in: { model, usage: { take: 'value', name: 'first usage' } } },
      delta: { in: { text, thinking: text, partial_json: text } },
      content: { in: { '*': { in: { text, thinking: text } } } },
    },
  },

  meter: () => new AnthropicMeter(),

  error(kind, message) {
    const [status, type] = errors[kind];
    return { status, headers: {}, body: JSON.stringify({ type: 'error', error: { type, message } }) };
  },

  keyHeaders: (key) => ({ 'x-api-key': key }),
};

/**
 * A stream says its input in `message_start` and its output, counted up, in `message_delta`. Input excludes what was read
 * from or written to the cache.
 */
class AnthropicMeter implements Meter {
  usage: Partial<Usage> = {};
  isFinal = false;
  model: string | undefined;

  value(name: string, value: unknown): void {
    if (name === 'model' && typeof value === 'string') this.model ??= value;
    if (name !== 'usage' && name !== 'first usage') return;
    if (typeof value !== 'object' || value === null) return;
    const written = countOf(fieldOf(value, 'cache_creation_input_tokens'));
    // `message_delta` repeats the sum of what was written, without its parts.
    const longer =
      countOf(fieldOf(value, 'cache_creation', 'ephemeral_1h_input_tokens')) ?? this.usage.cacheWrite1h;
    this.usage = {
      ...this.usage,
      ...defined('input', countOf(fieldOf(value, 'input_tokens'))),
      ...defined('cacheRead', countOf(fieldOf(value, 'cache_read_input_tokens'))),
      ...defined('cacheWrite1h', longer),
      ...defined('cacheWrite5m', written === undefined ? undefined : Math.max(0, written - (longer ?? 0))),
      ...defined('output', countOf(fieldOf(value, 'output_tokens'))),
    };
    if (name === 'usage') this.isFinal = true;
  }
}
