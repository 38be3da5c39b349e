/**
 * The Python client: types and calls from docs/openapi.json, and the client that waits from the one of asyncio, which is
 * written by hand.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const output = process.argv[2] ?? root;
const folder = 'clients/python/coppice';
mkdirSync(join(output, folder), { recursive: true });
const write = (name: string, text: string): void => writeFileSync(join(output, folder, name), text);

interface Schema {
  readonly type?: string | readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly additionalProperties?: Schema | boolean;
}
interface Parameter {
  readonly name: string;
  readonly in: 'path' | 'query';
  readonly required: boolean;
  readonly schema: Schema;
}
interface Content {
  readonly content?: Readonly<Record<string, { readonly schema?: Schema }>>;
}
interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly parameters: readonly Parameter[];
  readonly requestBody?: Content & { readonly required: boolean };
  readonly responses: Readonly<Record<string, Content>>;
}
type Paths = Readonly<Record<string, Readonly<Record<string, Operation>>>>;

/** The API as it is generated in the same run, or as it is committed. */
const read = (path: string): string => {
  try {
    return readFileSync(join(output, path), 'utf8');
  } catch {
    return readFileSync(join(root, path), 'utf8');
  }
};
const { paths } = JSON.parse(read('docs/openapi.json')) as { paths: Paths };

const pascal = (name: string): string =>
  name.replaceAll(/(?:^|[^A-Za-z0-9]+)([A-Za-z0-9])/g, (_match, letter: string) => letter.toUpperCase());
const snake = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const keywords = new Set([
  'from',
  'import',
  'class',
  'global',
  'in',
  'is',
  'as',
  'with',
  'not',
  'pass',
  'async',
]);
const identifier = (name: string): string => (keywords.has(name) ? `${name}_` : name.replaceAll(/\W/g, '_'));

/** What people write out, by the call that answers with it. */
const names: Readonly<Record<string, string>> = {
  CreateSandboxResult: 'CreatedSandbox',
  GetSandboxResult: 'SandboxDetail',
  ListSandboxesResultItem: 'SandboxInfo',
  CreateSnapshotResult: 'TakenSnapshot',
  GetSnapshotResult: 'Snapshot',
  ExecResult: 'ExecResult',
  ForkSandboxResult: 'Forked',
  GetJobResult: 'Job',
  ListEventsResultEvent: 'Event',
  ListImagesResultItem: 'Image',
  StatFileResult: 'FileEntry',
  DiffResult: 'Diff',
  MergeResult: 'Merged',
  HealthResult: 'Health',
  ListSandboxesResultItemForward: 'PortForward',
  ListSandboxesResultItemNetwork: 'NetworkPolicy',
  ListSandboxesResultItemParent1: 'Parent',
};
/** These are named before others could take the same shape. */
const first = [
  'listSandboxes',
  'getSandbox',
  'createSandbox',
  'getSnapshot',
  'createSnapshot',
  'statFile',
  'getJob',
  'forkSandbox',
];

class Types {
  readonly #known = new Map<string, string>();
  readonly #taken = new Set<string>();
  readonly #text: string[] = [];

  of(schema: Schema, name: string): string {
    if (schema.const !== undefined) return `Literal[${literal(schema.const)}]`;
    if (schema.enum !== undefined) return `Literal[${schema.enum.map(literal).join(', ')}]`;
    const choices = schema.anyOf ?? schema.oneOf;
    if (choices !== undefined)
      return [...new Set(choices.map((choice, index) => this.of(choice, `${name}${index + 1}`)))].join(' | ');
    const types = schema.type === undefined ? [] : [schema.type].flat();
    if (types.length === 0) return 'Any';
    return types.map((type) => this.#simple(type, schema, name)).join(' | ');
  }

  get text(): string {
    return this.#text.join('\n\n');
  }

  #simple(type: string, schema: Schema, name: string): string {
    switch (type) {
      case 'string':
        return 'str';
      case 'integer':
        return 'int';
      case 'number':
        return 'float';
      case 'boolean':
        return 'bool';
      case 'null':
        return 'None';
      case 'array':
        return `list[${schema.items === undefined ? 'Any' : this.of(schema.items, singular(name))}]`;
      default:
        return this.#object(schema, name);
    }
  }

  #object(schema: Schema, wanted: string): string {
    if (schema.properties === undefined || Object.keys(schema.properties).length === 0) {
      const values = schema.additionalProperties;
      return `dict[str, ${typeof values === 'object' && Object.keys(values).length > 0 ? this.of(values, `${wanted}Value`) : 'Any'}]`;
    }
    const key = JSON.stringify(schema);
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    let name = names[wanted] ?? wanted;
    while (this.#taken.has(name)) name += '_';
    this.#taken.add(name);
    this.#known.set(key, name);
    const fields = Object.entries(schema.properties).map(([field, of]) => {
      const type = this.of(of, `${wanted}${pascal(field)}`);
      return [field, schema.required?.includes(field) ? type : `NotRequired[${type}]`] as const;
    });
    this.#text.push(typedDict(name, fields));
    return name;
  }
}

const literal = (value: unknown): string =>
  typeof value === 'boolean' ? (value ? 'True' : 'False') : JSON.stringify(value);

const singular = (name: string): string =>
  name.endsWith('ies')
    ? `${name.slice(0, -3)}y`
    : name.endsWith('Items')
      ? name.slice(0, -1)
      : name.replace(/s$/, '') || `${name}Item`;

const typedDict = (name: string, fields: readonly (readonly [string, string])[]): string => {
  const isPlain = fields.every(([field]) => /^[A-Za-z_]\w*$/.test(field) && !keywords.has(field));
  if (!isPlain)
    return `${name} = TypedDict(\n    "${name}",\n    {\n${fields.map(([field, type]) => `        "${field}": "${type.replaceAll('"', "'")}",`).join('\n')}\n    },\n)\n`;
  const lines = fields.map(([field, type]) => `    ${field}: ${type}`);
  return `class ${name}(TypedDict):\n${lines.length === 0 ? '    pass' : lines.join('\n')}\n`;
};

const types = new Types();
const operations = Object.entries(paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
);
const rank = ({ operation }: (typeof operations)[number]): number => {
  const index = first.indexOf(operation.operationId);
  return index < 0 ? first.length : index;
};

const answerOf = ({ responses }: Operation): { kind: string; schema: Schema | undefined } => {
  const [, answer] = Object.entries(responses).find(([status]) => /^[12]/.test(status))!;
  const [kind = 'socket', content] = Object.entries(answer.content ?? {})[0] ?? [];
  return { kind, schema: content?.schema };
};

const callOf = ({ path, method, operation }: (typeof operations)[number]): string => {
  const { operationId, summary, parameters, requestBody } = operation;
  const { kind, schema } = answerOf(operation);
  if (kind === 'socket') return '';
  const base = pascal(operationId);
  const [bodyKind, body] = Object.entries(requestBody?.content ?? {})[0] ?? [];
  const inPath = parameters.filter((one) => one.in === 'path');
  const inQuery = parameters.filter((one) => one.in === 'query');
  const positional = inPath.map(
    ({ name, schema: of }) => `${identifier(name)}: ${types.of(of, base + pascal(name))}`,
  );
  if (bodyKind === 'application/octet-stream')
    positional.push('content: bytes | Iterable[bytes] | AsyncIterable[bytes]');
  else if (body?.schema !== undefined) {
    const type = qualified(types.of(body.schema, `${base}Body`));
    positional.push(requestBody?.required ? `body: ${type}` : `body: ${type} | None = None`);
  }
  const named = inQuery.map(({ name, required, schema: of }) => {
    const type = qualified(types.of(of, base + pascal(name)));
    return `${identifier(name)}: ${required ? type : `${type} | None = None`}`;
  });
  const args = ['self', ...positional, ...(named.length === 0 ? [] : ['*', ...named])].join(', ');
  const place =
    inPath.length === 0
      ? `"${path}"`
      : `f"${path.replaceAll(/\{(\w+)\}/g, (_match, name: string) => `{segment(${identifier(name)})}`)}"`;
  const query =
    inQuery.length === 0
      ? 'None'
      : `{${inQuery.map(({ name }) => `"${name}": ${identifier(name)}`).join(', ')}}`;
  const sent =
    bodyKind === 'application/octet-stream'
      ? ', content=content'
      : body?.schema !== undefined
        ? ', body=body'
        : '';
  const request = `("${method}", ${place}, ${query}${sent})`;
  const doc = `        """${summary}."""`;
  const name = snake(operationId);
  if (kind === 'text/event-stream')
    return `    def ${name}(${args}) -> AsyncGenerator[ServerEvent, None]:\n${doc}\n        return self._transport.events${request}\n`;
  if (kind === 'application/octet-stream')
    return `    def ${name}(${args}) -> AsyncGenerator[bytes, None]:\n${doc}\n        return self._transport.stream${request}\n`;
  if (kind === 'text/plain')
    return `    async def ${name}(${args}) -> str:\n${doc}\n        return await self._transport.text${request}\n`;
  const result = schema === undefined ? 'Any' : qualified(types.of(schema, `${base}Result`));
  return `    async def ${name}(${args}) -> ${result}:\n${doc}\n        return await self._transport.json${request}\n`;
};

/** Types of ours are in a module of their own. */
const qualified = (type: string): string =>
  type.replaceAll(/"[^"]*"|\b[A-Z]\w*\b/g, (word) =>
    word.startsWith('"') || ['Literal', 'Any', 'None', 'True', 'False'].includes(word) ? word : `t.${word}`,
  );

for (const one of [...operations].sort((a, b) => rank(a) - rank(b))) callOf(one);
const calls = operations.map(callOf).filter((text) => text !== '');

const execOptions =
  paths['/v1/sandboxes/{sandbox}/exec']!.post!.requestBody!.content!['application/json']!.schema!;
const { command: _command, ...options } = execOptions.properties!;
types.of({ ...execOptions, properties: options, required: [] }, 'ExecOptions');

const made = 'Written by scripts/generate-python-client.ts; changes here are lost.';
write(
  'types.py',
  `"""The shapes of requests and answers. ${made}"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


${types.text}`,
);

/** The same program, that waits: what httpcore and others do, too. */
const waiting = (text: string): string =>
  text
    .replaceAll(/\basync (def|for|with)\b/g, '$1')
    .replaceAll('await ', '')
    .replaceAll(/AsyncGenerator\[(\w+), None\]/g, 'Generator[$1, None, None]')
    .replaceAll(' | AsyncIterable[bytes]', '')
    .replaceAll(/, AsyncIterable\b|\bAsyncIterable, /g, '')
    .replaceAll(/\bAsync(?=[A-Z])/g, '')
    .replaceAll(/\b__a(enter|exit|iter)__/g, '__$1__')
    .replaceAll(/\baclose\b/g, 'close')
    .replaceAll(/_async\b/g, '')
    .replaceAll('for programs of asyncio', 'for programs that wait for answers');

const callsText = `"""Every call of the HTTP API. ${made}"""

from __future__ import annotations

from typing import Any, AsyncGenerator, AsyncIterable, Iterable, Literal

from . import types as t
from .messages import ServerEvent, segment
from .transport_async import AsyncTransport


class AsyncCalls:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

${calls.join('\n')}`;
write('calls_async.py', callsText);
write('calls.py', waiting(callsText));
const client = readFileSync(join(root, folder, 'client_async.py'), 'utf8');
write(
  'client.py',
  waiting(client).replace(/^"""(.*)\n?/, (line) => `${line.trimEnd()}\n# ${made}\n`),
);
