import type { Route } from '@coppice/protocol';
import * as fc from 'fast-check';
import { z } from 'zod';

interface JsonSchema {
  readonly type?: string | string[];
  readonly const?: unknown;
  readonly enum?: unknown[];
  readonly anyOf?: JsonSchema[];
  readonly oneOf?: JsonSchema[];
  readonly allOf?: JsonSchema[];
  readonly properties?: Record<string, JsonSchema>;
  readonly required?: string[];
  readonly items?: JsonSchema;
  readonly additionalProperties?: JsonSchema | boolean;
  readonly minimum?: number;
  readonly maximum?: number;
}

export interface FuzzRequest {
  readonly params: Readonly<Record<string, string>>;
  readonly query: readonly (readonly [string, string])[];
  /** Undefined: no body at all. A string goes out as it is. */
  readonly body: unknown;
}

/** References that exist, so that calls get past the door; the rest of the time they do not. */
export interface Known {
  readonly sandboxes: readonly string[];
  readonly snapshots: readonly string[];
}

const oddText = fc.constantFrom(
  '',
  ' ',
  '\0',
  'a\0b',
  '..',
  '/',
  '//',
  'null',
  'true',
  '-1',
  '0',
  '9'.repeat(40),
  '1e309',
  '٣',
  '\u202e\u0000\ufffd',
  '\ud800',
  '💥'.repeat(20),
  '%',
  '%00',
  '"\\\n\r\t',
  '__proto__',
  'constructor',
  'x'.repeat(64),
  'x'.repeat(5_000),
  'sb_00000000000000000000000000',
  'sn_00000000000000000000000000',
);

const oddValue: fc.Arbitrary<unknown> = fc.oneof(
  oddText,
  fc.constantFrom(null, true, false, 0, -1, 1.5, 2 ** 31, 2 ** 53, -(2 ** 63), 1e308),
  fc.constant([]),
  fc.constant({}),
  fc.array(fc.oneof(oddText, fc.integer()), { maxLength: 3 }),
  fc.dictionary(fc.oneof(oddText, fc.constant('name')), oddText, { maxKeys: 3 }),
  fc.constant(Array.from({ length: 60 }).reduce<unknown>((inner) => [inner], 'deep')),
);

const textFor = (name: string, known: Known): fc.Arbitrary<unknown> => {
  switch (name) {
    case 'path':
    case 'cwd':
      return fc.constantFrom(
        '/root/fuzzed',
        '/root',
        '/',
        '/nowhere/at/all',
        '/proc/self/status',
        'relative',
        '/dev/null',
      );
    case 'command':
      return fc.constantFrom('true', 'false', 'echo out; echo err >&2', 'exit 3', '/nowhere');
    case 'snapshot':
    case 'from':
    case 'to':
      return fc.constantFrom(...known.snapshots, ...known.sandboxes, '/root/fuzzed');
    case 'mode':
      return fc.constantFrom('644', '0755', '999');
    case 'image':
      return fc.constantFrom('tiny', 'nowhere');
    default:
      return fc.string({ maxLength: 12 });
  }
};

const numberFor = ({ minimum = 0, maximum = 2 ** 53 }: JsonSchema): fc.Arbitrary<number> => {
  const least = Math.max(Math.ceil(minimum), -1000);
  return fc.oneof(
    fc.integer({ min: least, max: Math.max(least, Math.min(maximum, least + 1000)) }),
    fc.constantFrom(minimum, maximum, minimum - 1, maximum + 1),
  );
};

/** Mostly what the schema asks for; now and then something else. */
const matching = (schema: JsonSchema, name: string, known: Known): fc.Arbitrary<unknown> => {
  const choices = schema.anyOf ?? schema.oneOf;
  if (schema.const !== undefined) return fc.constant(schema.const);
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum);
  if (choices !== undefined) return fc.oneof(...choices.map((choice) => matching(choice, name, known)));
  if (schema.allOf?.[0] !== undefined) return matching(schema.allOf[0], name, known);
  switch (schema.type) {
    case 'string':
      return textFor(name, known);
    case 'boolean':
      return fc.boolean();
    case 'integer':
    case 'number':
      return numberFor(schema);
    case 'array':
      return fc.array(matching(schema.items ?? {}, name, known), { maxLength: 3 });
    case 'object':
      return objectOf(schema, known);
    default:
      return oddValue;
  }
};

const objectOf = (schema: JsonSchema, known: Known): fc.Arbitrary<Record<string, unknown>> => {
  const fields = Object.entries(schema.properties ?? {}).map(
    ([name, property]) =>
      [
        name,
        fc.oneof(
          { weight: 6, arbitrary: matching(property, name, known) },
          { weight: 1, arbitrary: oddValue },
        ),
      ] as const,
  );
  const record = fc.record(Object.fromEntries(fields), { requiredKeys: schema.required ?? [] });
  if (typeof schema.additionalProperties === 'object')
    return fc.dictionary(
      fc.oneof(oddText, fc.constant('NAME')),
      matching(schema.additionalProperties, '', known),
      { maxKeys: 3 },
    );
  return record;
};

const damaged = (value: fc.Arbitrary<Record<string, unknown>>): fc.Arbitrary<unknown> =>
  fc.oneof(
    { weight: 12, arbitrary: value },
    {
      weight: 1,
      arbitrary: fc
        .tuple(value, oddText, oddValue)
        .map(([fields, name, extra]) => ({ ...fields, [name]: extra })),
    },
    {
      weight: 1,
      arbitrary: value.map((fields) => Object.fromEntries(Object.entries(fields).slice(1))),
    },
    { weight: 1, arbitrary: oddValue },
  );

const jsonSchemaOf = (schema: z.ZodType): JsonSchema =>
  z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as JsonSchema;

const rawBodies = fc.constantFrom(
  '',
  '{',
  '[',
  '{"a":',
  'null',
  '"text"',
  '12',
  '{"__proto__":{"x":1}}',
  '\0',
  '{}{}',
);

const paramFor = (name: string, known: Known): fc.Arbitrary<string> => {
  const good =
    name === 'sandbox'
      ? fc.constantFrom(...known.sandboxes)
      : name === 'snapshot'
        ? fc.constantFrom(...known.snapshots)
        : fc.constantFrom('1', '2', 'tiny', '65535');
  return fc.oneof({ weight: 9, arbitrary: good }, { weight: 1, arbitrary: oddText });
};

/** Requests for a route, made from its schemas: most would be taken, some break every rule. */
export const requestFor = (route: Route, known: Known): fc.Arbitrary<FuzzRequest> => {
  const names = Object.keys(route.params?.shape ?? {});
  const params = fc.record(Object.fromEntries(names.map((name) => [name, paramFor(name, known)])));
  const query =
    route.query === undefined
      ? fc.oneof(
          { weight: 5, arbitrary: fc.constant({}) },
          { weight: 1, arbitrary: fc.constant({ surprise: '1' }) },
        )
      : damaged(objectOf(jsonSchemaOf(route.query), known));
  const body =
    route.body === undefined
      ? fc.constantFrom(undefined, undefined, {}, 'text')
      : fc.oneof(
          { weight: 10, arbitrary: damaged(objectOf(jsonSchemaOf(route.body), known)) },
          { weight: 1, arbitrary: rawBodies },
        );
  return fc.record({
    params: params as fc.Arbitrary<Record<string, string>>,
    query: query.map((fields) =>
      Object.entries(fields ?? {}).map(([name, value]): [string, string] => [
        name,
        typeof value === 'string' ? value : (JSON.stringify(value) ?? ''),
      ]),
    ),
    body,
  });
};
