import type { IncomingHttpHeaders } from 'node:http';
import { CoppiceError } from '@coppice/protocol';
import { allToolsets, type Selection, toolNamed, toolsetNames } from './registry.ts';

/** A parameter of /mcp, and the header that says the same. */
const headerOf = {
  toolsets: 'x-mcp-toolsets',
  tools: 'x-mcp-tools',
  read_only: 'x-mcp-readonly',
  full_schemas: 'x-mcp-full-schemas',
} as const;
type Parameter = keyof typeof headerOf;
export const selectionParameters = Object.keys(headerOf) as readonly Parameter[];

const listOf = (text: string): string[] =>
  text
    .split(',')
    .map((word) => word.trim())
    .filter((word) => word !== '');

const isOn = (name: Parameter, text: string | undefined): boolean => {
  if (text === undefined || text === 'false') return false;
  if (text === 'true') return true;
  throw new CoppiceError('invalid_argument', `${name} must be true or false`);
};

/** Which tools a caller of /mcp asks for, by its query or its headers; the query goes first. */
export const readSelection = (
  query: Readonly<Record<string, unknown>>,
  headers: IncomingHttpHeaders,
): Selection => {
  const given = (name: Parameter): string | undefined => {
    const value = query[name] ?? headers[headerOf[name]];
    if (value === undefined || typeof value === 'string') return value;
    throw new CoppiceError('invalid_argument', `${name} is given more than once`, {
      hint: 'Separate names by commas.',
    });
  };
  const toolsets = given('toolsets');
  const tools = given('tools');
  const selection: Selection = {
    toolsets: toolsets === undefined ? (tools === undefined ? ['default'] : []) : listOf(toolsets),
    tools: tools === undefined ? [] : listOf(tools),
    readOnly: isOn('read_only', given('read_only')),
    fullSchemas: isOn('full_schemas', given('full_schemas')),
  };
  const unknownSet = selection.toolsets.find((name) => !toolsetNames.includes(name));
  if (unknownSet !== undefined)
    throw new CoppiceError('invalid_argument', `there is no toolset ${unknownSet.slice(0, 64)}`, {
      hint: `Choose among ${toolsetNames.join(', ')}.`,
    });
  const unknownTool = selection.tools.find((name) => toolNamed(name) === undefined);
  if (unknownTool !== undefined)
    throw new CoppiceError('invalid_argument', `there is no tool ${unknownTool.slice(0, 64)}`, {
      hint: `Choose among ${Object.values(allToolsets)
        .flat()
        .map(({ name }) => name)
        .join(', ')}.`,
    });
  if (selection.toolsets.length + selection.tools.length === 0)
    throw new CoppiceError('invalid_argument', 'name at least one toolset or tool');
  return selection;
};
