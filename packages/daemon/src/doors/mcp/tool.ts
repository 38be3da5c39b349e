import type { Action, ErrorCode } from '@coppice/protocol';
import type { ContentBlock, ToolAnnotations } from '@modelcontextprotocol/server';
import type { z } from 'zod';
import type { ToolContext } from './tool-context.ts';

export interface ToolDefinition<I extends z.ZodObject, O extends z.ZodObject> {
  readonly name: string;
  readonly title: string;
  /** Says what it is for, and when not to use it. */
  readonly description: string;
  /** All that it does, as the table of scopes names it: a token that may not do one of these is not offered the tool. */
  readonly actions: readonly Action[];
  /** What it does besides, for tokens that may. */
  readonly extras?: readonly Action[];
  readonly input: I;
  readonly output: O;
  readonly annotations: Readonly<
    Pick<ToolAnnotations, 'readOnlyHint' | 'destructiveHint' | 'idempotentHint' | 'openWorldHint'>
  >;
  /** What to do next after a failure with that code, where the common advice is too general. */
  readonly next?: Readonly<Partial<Record<ErrorCode, string>>>;
  run(context: ToolContext, input: z.output<I>): Promise<z.input<O>>;
  /** The answer as a model reads it; JSON of the answer where this is left out. */
  readonly content?: (output: z.input<O>) => ContentBlock[];
}

export type Tool = ToolDefinition<z.ZodObject, z.ZodObject>;

/** Keeps the types of one tool together, and gives it back in the shape that the registry holds. */
export const defineTool = <I extends z.ZodObject, O extends z.ZodObject>(tool: ToolDefinition<I, O>): Tool =>
  tool as unknown as Tool;

export const readOnly = {
  readOnlyHint: true,
  destructiveHint: false,
  idempotentHint: true,
  openWorldHint: false,
} as const;
/** Adds something new at each call. */
export const additive = {
  readOnlyHint: false,
  destructiveHint: false,
  idempotentHint: false,
  openWorldHint: false,
} as const;
/** A second call with the same arguments changes nothing more. */
export const settling = {
  readOnlyHint: false,
  destructiveHint: false,
  idempotentHint: true,
  openWorldHint: false,
} as const;
/** May overwrite or remove; a second call finds it done. */
export const replacing = {
  readOnlyHint: false,
  destructiveHint: true,
  idempotentHint: true,
  openWorldHint: false,
} as const;
/** May do anything, each time again. */
export const unbounded = {
  readOnlyHint: false,
  destructiveHint: true,
  idempotentHint: false,
  openWorldHint: false,
} as const;
/** Reaches beyond the machine, as far as the policy of the workspace lets it. */
export const outward = <T extends Tool['annotations']>(annotations: T) =>
  ({ ...annotations, openWorldHint: true }) as const;
