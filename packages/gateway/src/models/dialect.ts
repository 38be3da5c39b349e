import type { Found, Wanted } from './json-scanner.ts';
import type { Usage } from './usage.ts';

export type DialectName = 'anthropic' | 'openai-responses' | 'openai-chat' | 'gemini';

/** What the head of a request says. */
export interface Asked {
  /** `generate` is metered; `count` asks how long a prompt is and costs nothing. */
  readonly purpose: 'generate' | 'count';
  /** Where the path says it (Gemini). */
  readonly model?: string;
  readonly stream?: boolean;
}

/** What the fields of a request say. */
export interface ModelRequest {
  readonly model: string;
  readonly stream: boolean;
  /** The longest answer that it allows, in tokens. */
  readonly maxOutput: number | undefined;
  /** How many answers it asks for, each as long as that. One where the API has no such thing. */
  readonly answers?: number;
  /** The vendor takes no smaller limit with this request. */
  readonly leastOutput?: number;
  /** It offers tools: a step of an agent's work, and no title or suggestion beside it. */
  readonly hasTools: boolean;
}

/** Fields of a request by name, as the scanner found them. */
export type RequestFields = ReadonlyMap<string, Found>;

/** Replaces bytes of a request; `start` and `end` are the same where something is put in. */
export interface Edit {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

export interface Changes {
  readonly model?: string;
  readonly maxOutput?: number;
  /** The field that sets the longest answer where the request has none. Only Chat Completions has two. */
  readonly maxOutputField?: 'max_tokens' | 'max_completion_tokens';
}

/** Hears the values that `answerFields` names, of one answer, in their order. */
export interface Meter {
  value(name: string, value: unknown): void;
  /** What was reported so far. */
  readonly usage: Partial<Usage>;
  /** The final counts were seen. */
  readonly isFinal: boolean;
  readonly model: string | undefined;
}

export type ErrorKind = 'budget' | 'invalid' | 'forbidden' | 'not_found' | 'too_large' | 'busy' | 'upstream';

export interface ErrorAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** One way to speak to models over HTTP. */
export interface Dialect {
  readonly name: DialectName;
  asked(method: string, path: string): Asked | undefined;
  /** What to look for in a request. */
  readonly requestFields: Wanted;
  /** Throws a `CoppiceError` that says what is wrong. */
  readRequest(asked: Asked, fields: RequestFields): ModelRequest;
  /** Puts `model` into the path where it belongs there. */
  path(path: string, changes: Changes): string;
  edits(fields: RequestFields, request: ModelRequest, changes: Changes): readonly Edit[];
  /** What to look for in an answer. The name `text` is for what the model wrote, and only measured. */
  readonly answerFields: Wanted;
  meter(): Meter;
  /** An event of a stream that the client did not ask for and must not see. */
  isAddedEvent?(request: ModelRequest, fields: RequestFields): ((line: string) => boolean) | undefined;
  error(kind: ErrorKind, message: string): ErrorAnswer;
  /** The headers that carry a key. */
  keyHeaders(key: string): Readonly<Record<string, string>>;
}
