import type { Usage } from '../../models/usage.ts';
import type { ScriptStep } from './script.ts';

/** One answer, before it has the form of a dialect. */
export interface Said {
  readonly id: string;
  readonly model: string;
  readonly thinking: string;
  readonly text: string;
  /** The text in the parts of a stream. */
  readonly parts: readonly string[];
  readonly tools: ScriptStep['tools'];
  readonly usage: Usage;
  /** The request allowed no longer answer. */
  readonly isCut: boolean;
}

export interface SpokenRequest {
  readonly model: string;
  readonly stream: boolean;
  /** Chat Completions: whether the stream is to report its usage. */
  readonly wantsUsage: boolean;
  readonly maxOutput: number | undefined;
  /** Answers that the conversation has so far. */
  readonly turns: number;
  /** Results of tools in it. */
  readonly results: number;
  /** Whether it offers tools. */
  readonly tools: boolean;
  readonly bytes: number;
}

/** How an answer looks in one dialect. */
export interface Voice {
  read(path: string, body: Record<string, unknown>): Omit<SpokenRequest, 'bytes'>;
  whole(said: Said): unknown;
  /** The events of a stream, each as its bytes. */
  stream(said: Said, request: SpokenRequest): Iterable<string>;
}

export const event = (data: unknown, name?: string): string =>
  `${name === undefined ? '' : `event: ${name}\n`}data: ${JSON.stringify(data)}\n\n`;

export const arrayOf = (value: unknown): readonly Record<string, unknown>[] =>
  Array.isArray(value) ? (value as Record<string, unknown>[]) : [];

/** Elements of arrays in an array. */
export const within = (value: unknown, field: string): readonly Record<string, unknown>[] =>
  arrayOf(value).flatMap((each) => arrayOf(each[field]));

export const numberOf = (value: unknown): number | undefined =>
  typeof value === 'number' ? value : undefined;
