/**
 * Cuts what the adapter uses out of GitHub's own API description:
 *   npm pack @octokit/openapi@23.0.2 && tar xzf octokit-openapi-23.0.2.tgz
 *   scripts/run node scripts/cut-github-description.ts package/generated/api.github.com.json 23.0.2
 * The whole is 13 MB; the test needs these few operations.
 */
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type Node = { [key: string]: Json };

const wanted: Readonly<Record<string, readonly string[]>> = {
  '/repos/{owner}/{repo}': ['get'],
  '/repos/{owner}/{repo}/issues/{issue_number}': ['get'],
  '/repos/{owner}/{repo}/issues/{issue_number}/comments': ['post'],
  '/repos/{owner}/{repo}/git/ref/{ref}': ['get'],
  '/repos/{owner}/{repo}/git/refs': ['post'],
  '/repos/{owner}/{repo}/git/refs/{ref}': ['delete'],
  '/repos/{owner}/{repo}/compare/{basehead}': ['get'],
  '/repos/{owner}/{repo}/pulls': ['get', 'post'],
  '/repos/{owner}/{repo}/pulls/{pull_number}': ['get', 'patch'],
  '/repos/{owner}/{repo}/pulls/{pull_number}/merge': ['put'],
  '/repos/{owner}/{repo}/pulls/{pull_number}/reviews': ['get'],
  '/repos/{owner}/{repo}/commits/{ref}/check-runs': ['get'],
  '/repos/{owner}/{repo}/commits/{ref}/status': ['get'],
  '/repos/{owner}/{repo}/statuses/{sha}': ['post'],
};
const dropped = new Set([
  'description',
  'summary',
  'example',
  'examples',
  'title',
  'externalDocs',
  'deprecated',
]);

const [source = '', version = ''] = process.argv.slice(2);
const text = readFileSync(source);
const whole = JSON.parse(text.toString('utf8')) as Node;

const at = (path: string): Json =>
  path
    .slice(2)
    .split('/')
    .reduce<Json>((node, key) => (node as Node)[key.replaceAll('~1', '/').replaceAll('~0', '~')]!, whole);

const definitions: Node = {};

/** As a plain JSON Schema: `nullable` is a type, references point into one list. */
function schemaOf(node: Json): Json {
  if (Array.isArray(node)) return node.map(schemaOf);
  if (typeof node !== 'object' || node === null) return node;
  const ref = node.$ref;
  if (typeof ref === 'string') {
    const name = ref.split('/').at(-1)!;
    if (!(name in definitions)) {
      definitions[name] = true;
      definitions[name] = schemaOf(at(ref));
    }
    return { $ref: `#/definitions/${name}` };
  }
  const { nullable, ...rest } = node;
  const plain: Node = {};
  for (const [key, value] of Object.entries(rest)) {
    if (key === 'properties')
      plain[key] = Object.fromEntries(
        Object.entries(value as Node).map(([name, each]) => [name, schemaOf(each)]),
      );
    else if (!dropped.has(key)) plain[key] = schemaOf(value);
  }
  if (nullable !== true) return plain;
  if (typeof plain.type !== 'string') return { anyOf: [plain, { type: 'null' }] };
  return {
    ...plain,
    type: [plain.type, 'null'],
    ...(Array.isArray(plain.enum) ? { enum: [...plain.enum, null] } : {}),
  };
}

const resolved = (node: Json): Node => {
  const ref = (node as Node).$ref;
  return typeof ref === 'string' ? (at(ref) as Node) : (node as Node);
};
const jsonSchema = (content: Json | undefined): Json =>
  content === undefined
    ? null
    : schemaOf(((content as Node)['application/json'] as Node | undefined)?.schema ?? {});

const operations: Node = {};
for (const [path, methods] of Object.entries(wanted))
  for (const method of methods) {
    const operation = ((whole.paths as Node)[path] as Node)[method] as Node;
    const parameters = ((operation.parameters ?? []) as Json[]).map(resolved);
    const query = parameters.filter((each) => each.in === 'query');
    operations[`${method.toUpperCase()} ${path}`] = {
      query: {
        type: 'object',
        properties: Object.fromEntries(query.map((each) => [each.name, schemaOf(each.schema!)])),
        additionalProperties: false,
      },
      body: jsonSchema((operation.requestBody as Node | undefined)?.content),
      answers: Object.fromEntries(
        Object.entries(operation.responses as Node).map(([status, answer]) => [
          status,
          jsonSchema(resolved(answer).content),
        ]),
      ),
    };
  }

const slice = {
  source: `npm @octokit/openapi@${version}, generated/api.github.com.json (MIT, Gregor Martynus and GitHub)`,
  sha256: createHash('sha256').update(text).digest('hex'),
  operations,
  definitions,
};
writeFileSync(
  join(import.meta.dirname, '../tests/forge/descriptions/github.json'),
  `${JSON.stringify(slice)}\n`,
);
