import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { accessOf } from '@coppice/protocol';
import { z } from 'zod';
import { allToolsets } from '../packages/daemon/src/doors/mcp/registry.ts';
import type { Tool } from '../packages/daemon/src/doors/mcp/tool.ts';

const outDir = join(process.argv[2] ?? join(import.meta.dirname, '..'), 'docs');
mkdirSync(outDir, { recursive: true });

interface Property {
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly default?: unknown;
  readonly description?: string;
  readonly anyOf?: readonly Property[];
}

interface ObjectSchema {
  readonly properties?: Readonly<Record<string, Property>>;
  readonly required?: readonly string[];
}

const typeOf = (property: Property): string => {
  if (property.enum !== undefined) return property.enum.map((value) => `\`${value}\``).join(', ');
  if (property.const !== undefined) return `\`${property.const}\``;
  if (property.anyOf !== undefined) return property.anyOf.map(typeOf).join(' or ');
  return String(property.type ?? 'any');
};

const cell = (text: string): string => text.replaceAll('|', '\\|').replaceAll('\n', ' ');

const parameters = (tool: Tool): string => {
  const schema = z.toJSONSchema(tool.input, { io: 'input' }) as ObjectSchema;
  const rows = Object.entries(schema.properties ?? {}).map(([name, property]) => {
    const need = schema.required?.includes(name)
      ? 'required'
      : property.default === undefined
        ? ''
        : `default \`${JSON.stringify(property.default)}\``;
    return `| \`${name}\` | ${cell(typeOf(property))} | ${need} | ${cell(property.description ?? '')} |`;
  });
  return rows.length === 0
    ? 'Takes no parameters.'
    : ['| parameter | type | | |', '|---|---|---|---|', ...rows].join('\n');
};

const answer = (tool: Tool): string => {
  const schema = z.toJSONSchema(tool.output, { io: 'output' }) as ObjectSchema;
  return Object.keys(schema.properties ?? {})
    .map((name) => `\`${name}\``)
    .join(' ');
};

const traits = ({ annotations, actions }: Tool): string =>
  [
    annotations.readOnlyHint ? 'read-only' : annotations.destructiveHint ? 'destructive' : 'changes things',
    ...(annotations.idempotentHint ? ['idempotent'] : []),
    ...(actions.some((action) => accessOf(action) === 'admin') ? ['admin token'] : []),
  ].join(', ');

const section = (tool: Tool): string =>
  [
    `### ${tool.name}`,
    `${tool.description} (${traits(tool)})`,
    parameters(tool),
    `Answers: ${answer(tool)}`,
  ].join('\n\n');

const groups = Object.entries(allToolsets).map(([title, tools]) =>
  [`## ${title}`, ...tools.map(section)].join('\n\n'),
);
const count = Object.values(allToolsets).flat().length;

writeFileSync(
  join(outDir, 'mcp-tools.md'),
  `# MCP tools

Made from the tools themselves by \`scripts/generate\`. There are ${count}; how to connect, toolsets and sessions are in [mcp.md](mcp.md).

${groups.join('\n\n')}
`,
);
