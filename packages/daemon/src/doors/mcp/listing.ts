import type { ToolAnnotations, Tool as ToolListing } from '@modelcontextprotocol/server';
import { z } from 'zod';
import type { Tool } from './tool.ts';

/** Every answer says when it lost something. */
const saysLost = {
  redacted: z.literal(true).optional(),
  shortened: z.string().optional().describe('What was left out to keep the answer short.'),
};

/** What a caller of a tool does not need to know beforehand: the error for a value out of bounds says what the bounds are. */
const silent = new Set([
  '$schema',
  'pattern',
  'format',
  'minimum',
  'maximum',
  'exclusiveMinimum',
  'exclusiveMaximum',
  'minLength',
  'maxLength',
  'minItems',
  'maxItems',
  'propertyNames',
]);

/** A schema in as few words as it takes. */
const brief = (schema: unknown): unknown => {
  if (Array.isArray(schema)) return schema.map(brief);
  if (typeof schema !== 'object' || schema === null) return schema;
  const entries = Object.entries(schema).flatMap(([key, value]): [string, unknown][] => {
    if (silent.has(key) || (key === 'additionalProperties' && value === false)) return [];
    // Names of parameters are no words of the schema.
    if (key === 'properties')
      return [
        [key, Object.fromEntries(Object.entries(value as object).map(([name, of]) => [name, brief(of)]))],
      ];
    return [[key, key === 'default' ? value : brief(value)]];
  });
  return Object.fromEntries(entries);
};

/** Hints that say what the protocol takes for granted are left out. */
const grantedHints: ToolAnnotations = {
  readOnlyHint: false,
  destructiveHint: true,
  idempotentHint: false,
  openWorldHint: true,
};

const briefHints = (annotations: Tool['annotations']): ToolAnnotations => {
  // Destructive or idempotent means nothing for a tool that only reads.
  const said =
    annotations.readOnlyHint === true ? ['readOnlyHint', 'openWorldHint'] : Object.keys(annotations);
  return Object.fromEntries(
    Object.entries(annotations).filter(
      ([hint, value]) => said.includes(hint) && value !== grantedHints[hint as keyof ToolAnnotations],
    ),
  );
};

/**
 * A tool as `tools/list` shows it. Bounds of parameters and the schema of answers are more than half of the list, and are for
 * programs: they come where `full` is asked for.
 */
export const listingOf = (tool: Tool, description: string, full: boolean): ToolListing => {
  const { name, title, annotations } = tool;
  const input = z.toJSONSchema(tool.input, { io: 'input' });
  if (!full)
    return {
      name,
      title,
      description,
      inputSchema: brief(input) as ToolListing['inputSchema'],
      annotations: briefHints(annotations),
    };
  const output = z.toJSONSchema(tool.output.extend(saysLost), { io: 'output' });
  return {
    name,
    title,
    description,
    inputSchema: input as ToolListing['inputSchema'],
    outputSchema: output as ToolListing['outputSchema'],
    annotations: { ...annotations, title },
  };
};
