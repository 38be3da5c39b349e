import type { Asked, Changes, Dialect, Edit, Meter, ModelRequest, RequestFields } from '../dialect.ts';
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

const text: Wanted = { take: 'length', name: 'text' };
const message: Wanted = {
  in: {
    content: text,
    reasoning: text,
    reasoning_content: text,
    tool_calls: { in: { '*': { in: { function: { in: { arguments: text } } } } } },
  },
};

/** The last chunk of a stream that reports its usage has no choices, which clients that did not ask for it do not expect. */
const isUsageChunk = (line: string): boolean =>
  line.startsWith('data:') && /"choices"\s*:\s*\[\s*\]/.test(line) && /"usage"\s*:\s*\{/.test(line);

const asksForUsage = (fields: RequestFields): boolean => booleanField(fields, 'stream_options.include_usage');

/** OpenAI Chat Completions, which most other servers speak as well. */
export const openaiChat: Dialect = {
  name: 'openai-chat',

  asked(method, path): Asked | undefined {
    return method === 'POST' && path === '/v1/chat/completions' ? { purpose: 'generate' } : undefined;
  },

  requestFields: {
    take: 'range',
    name: 'request',
    in: {
      model: { take: 'value', name: 'model' },
      stream: { take: 'value', name: 'stream' },
      tools: toolsField,
      max_tokens: { take: 'value', name: 'max_tokens' },
      max_completion_tokens: { take: 'value', name: 'max_completion_tokens' },
      n: { take: 'value', name: 'n' },
      stream_options: {
        take: 'range',
        name: 'stream_options',
        in: { include_usage: { take: 'value', name: 'stream_options.include_usage' } },
      },
    },
  },

  readRequest(_asked, fields): ModelRequest {
    const longest = countField(fields, 'max_completion_tokens') ?? countField(fields, 'max_tokens');
    return {
      model: modelName(stringField(fields, 'model')),
      stream: booleanField(fields, 'stream'),
      maxOutput: longest,
      answers: countField(fields, 'n') ?? 1,
      hasTools: hasTools(fields),
    };
  },

  path: (path) => path,

  edits(fields: RequestFields, request: ModelRequest, changes: Changes): readonly Edit[] {
    const edits: Edit[] = [];
    if (changes.model !== undefined) edits.push(setField(fields, 'model', changes.model, 'request'));
    if (changes.maxOutput !== undefined) {
      const set = ['max_completion_tokens', 'max_tokens'].filter(
        (name) => countField(fields, name) !== undefined,
      );
      const names = set.length === 0 ? [changes.maxOutputField ?? 'max_completion_tokens'] : set;
      for (const name of names) edits.push(setField(fields, name, changes.maxOutput, 'request'));
    }
    if (request.stream && !asksForUsage(fields)) edits.push(usageEdit(fields));
    return edits;
  },

  answerFields: {
    in: {
      model: { take: 'value', name: 'model' },
      usage: { take: 'value', name: 'usage' },
      choices: { in: { '*': { in: { delta: message, message } } } },
    },
  },

  meter: () => new ChatMeter(),

  isAddedEvent: (request, fields) => (request.stream && !asksForUsage(fields) ? isUsageChunk : undefined),

  error: openaiError,

  keyHeaders: (key) => ({ authorization: `Bearer ${key}` }),
};

const usageEdit = (fields: RequestFields): Edit => {
  const options = fields.get('stream_options');
  // `null` counts as absent there, and is no object that something could be put into.
  if (options === undefined || options.isEmpty === undefined)
    return setField(fields, 'stream_options', { include_usage: true }, 'request');
  return setField(fields, 'stream_options.include_usage', true, 'stream_options', 'include_usage');
};

/** Prompt includes what was cached, completion includes reasoning. Some servers report in every chunk, counting up. */
class ChatMeter implements Meter {
  usage: Partial<Usage> = {};
  isFinal = false;
  model: string | undefined;

  value(name: string, value: unknown): void {
    if (name === 'model' && typeof value === 'string' && value !== '') this.model ??= value;
    if (name !== 'usage' || typeof value !== 'object' || value === null) return;
    const input = countOf(fieldOf(value, 'prompt_tokens'));
    const output = countOf(fieldOf(value, 'completion_tokens'));
    if (input === undefined || output === undefined) return;
    const cached = Math.min(input, countOf(fieldOf(value, 'prompt_tokens_details', 'cached_tokens')) ?? 0);
    this.usage = {
      input: input - cached,
      cacheRead: cached,
      output,
      ...defined('reasoning', countOf(fieldOf(value, 'completion_tokens_details', 'reasoning_tokens'))),
    };
    this.isFinal = true;
  }
}
