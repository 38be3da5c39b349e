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
import { countOf, fieldOf, type Usage } from '../usage.ts';
import { countField, hasTools, modelName, setField, toolsField } from './fields.ts';

const errors: Readonly<Record<ErrorKind, readonly [status: number, name: string]>> = {
  budget: [402, 'FAILED_PRECONDITION'],
  invalid: [400, 'INVALID_ARGUMENT'],
  forbidden: [403, 'PERMISSION_DENIED'],
  not_found: [404, 'NOT_FOUND'],
  too_large: [413, 'INVALID_ARGUMENT'],
  busy: [429, 'RESOURCE_EXHAUSTED'],
  upstream: [502, 'UNAVAILABLE'],
};

const pathPattern =
  /^(\/(?:v1|v1beta|v1alpha)\/models\/)([^/:]+)(:(generateContent|streamGenerateContent|countTokens))$/;

const part: Wanted = { in: { text: { take: 'length', name: 'text' } } };
const answer: Readonly<Record<string, Wanted>> = {
  modelVersion: { take: 'value', name: 'model' },
  usageMetadata: { take: 'value', name: 'usage' },
  candidates: {
    in: {
      '*': {
        in: {
          finishReason: { take: 'value', name: 'finish' },
          content: { in: { parts: { in: { '*': part } } } },
        },
      },
    },
  },
  promptFeedback: { in: { blockReason: { take: 'value', name: 'finish' } } },
};

/** Both spellings that the vendor takes. */
const generationConfig: Wanted = {
  take: 'range',
  name: 'generationConfig',
  in: {
    maxOutputTokens: { take: 'value', name: 'maxOutputTokens' },
    max_output_tokens: { take: 'value', name: 'maxOutputTokens' },
    candidateCount: { take: 'value', name: 'candidateCount' },
    candidate_count: { take: 'value', name: 'candidateCount' },
  },
};

/** Gemini's `generateContent` and its relatives. */
export const gemini: Dialect = {
  name: 'gemini',

  asked(method, path): Asked | undefined {
    const match = method === 'POST' ? pathPattern.exec(path) : null;
    if (match === null) return undefined;
    return {
      purpose: match[4] === 'countTokens' ? 'count' : 'generate',
      model: decoded(match[2]!),
      stream: match[4] === 'streamGenerateContent',
    };
  },

  requestFields: {
    take: 'range',
    name: 'request',
    in: { generationConfig, generation_config: generationConfig, tools: toolsField },
  },

  readRequest(asked, fields): ModelRequest {
    return {
      model: modelName(asked.model),
      stream: asked.stream ?? false,
      maxOutput: countField(fields, 'maxOutputTokens'),
      answers: countField(fields, 'candidateCount') ?? 1,
      hasTools: hasTools(fields),
    };
  },

  path(path, changes) {
    if (changes.model === undefined) return path;
    const [before, query] = path.split('?', 2);
    const moved = before!.replace(pathPattern, (_all, start: string, _model: string, method: string) => {
      return `${start}${encodeURIComponent(changes.model!)}${method}`;
    });
    return query === undefined ? moved : `${moved}?${query}`;
  },

  edits(fields: RequestFields, _request: ModelRequest, changes: Changes): readonly Edit[] {
    if (changes.maxOutput === undefined) return [];
    if (fields.has('maxOutputTokens'))
      return [setField(fields, 'maxOutputTokens', changes.maxOutput, 'request')];
    const config = fields.get('generationConfig');
    if (config === undefined || config.isEmpty === undefined)
      return [setField(fields, 'generationConfig', { maxOutputTokens: changes.maxOutput }, 'request')];
    return [setField(fields, 'maxOutputTokens', changes.maxOutput, 'generationConfig')];
  },

  // Without `alt=sse` a stream is one array.
  answerFields: { in: { ...answer, '*': { in: answer } } },

  meter: () => new GeminiMeter(),

  error(kind, message) {
    const [code, status] = errors[kind];
    return { status: code, headers: {}, body: JSON.stringify({ error: { code, message, status } }) };
  },

  keyHeaders: (key) => ({ 'x-goog-api-key': key }),
};

const decoded = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

/** Every chunk reports, counting up. The prompt includes what was cached; thoughts are not in the candidates. */
class GeminiMeter implements Meter {
  usage: Partial<Usage> = {};
  model: string | undefined;
  #isReported = false;
  #isFinished = false;

  get isFinal(): boolean {
    return this.#isReported && this.#isFinished;
  }

  value(name: string, value: unknown): void {
    if (name === 'model' && typeof value === 'string') this.model ??= value;
    if (name === 'finish' && typeof value === 'string') this.#isFinished = true;
    if (name !== 'usage' || typeof value !== 'object' || value === null) return;
    const prompt = countOf(fieldOf(value, 'promptTokenCount'));
    if (prompt === undefined) return;
    const tools = countOf(fieldOf(value, 'toolUsePromptTokenCount')) ?? 0;
    const cached = Math.min(prompt, countOf(fieldOf(value, 'cachedContentTokenCount')) ?? 0);
    const thoughts = countOf(fieldOf(value, 'thoughtsTokenCount')) ?? 0;
    this.usage = {
      input: prompt - cached + tools,
      cacheRead: cached,
      output: (countOf(fieldOf(value, 'candidatesTokenCount')) ?? 0) + thoughts,
      reasoning: thoughts,
    };
    this.#isReported = true;
  }
}
