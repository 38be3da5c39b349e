import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { errorKinds, type Route, type RouteName, routes } from '@coppice/protocol';
import { openApiDocument } from '../packages/daemon/src/doors/http/openapi.ts';
import { version } from '../packages/daemon/src/version.ts';
import { curlExample } from './curl-examples.ts';

const outDir = join(process.argv[2] ?? join(import.meta.dirname, '..'), 'docs');
mkdirSync(outDir, { recursive: true });

const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [
    `| ${head.join(' | ')} |`,
    `|${head.map(() => '---').join('|')}|`,
    ...rows.map((row) => `| ${row.join(' | ')} |`),
  ].join('\n');

const fields = (schema: Route['query'] | Route['body']): string => {
  const shape = (schema as { shape?: Record<string, unknown> } | undefined)?.shape;
  return shape === undefined
    ? ''
    : Object.keys(shape)
        .map((name) => `\`${name}\``)
        .join(' ');
};

const named = Object.entries(routes as Record<string, Route>) as [RouteName, Route][];
const byTag = Map.groupBy(named, ([, { tag }]) => tag);

/** Each below the call that it is of. */
const examples = (tagRoutes: readonly [RouteName, Route][]): string[] => {
  const lines = tagRoutes.flatMap(([name, route]) => {
    const line = curlExample(name, route);
    return line === undefined ? [] : [`# ${route.method} ${route.path}`, line];
  });
  return lines.length === 0 ? [] : ['', '```sh', ...lines, '```'];
};

const sections = [...byTag].map(([tag, tagRoutes]) =>
  [
    `## ${tag}`,
    '',
    table(
      ['call', 'what it does', 'token', 'takes', 'answers'],
      tagRoutes.map(([, route]) => [
        `\`${route.method} ${route.path}\``,
        route.summary,
        route.scope,
        [fields(route.query), route.upload ? 'bytes' : fields(route.body)].filter(Boolean).join(' · '),
        route.answer,
      ]),
    ),
    ...examples(tagRoutes),
  ].join('\n'),
);

const errors = table(
  ['code', 'HTTP', 'exit code', 'retry', 'what to do'],
  Object.entries(errorKinds).map(([code, kind]) => [
    `\`${code}\``,
    String(kind.status),
    String(kind.exitCode),
    kind.retryable ? 'yes' : 'no',
    kind.hint,
  ]),
);

writeFileSync(join(outDir, 'openapi.json'), `${JSON.stringify(openApiDocument(version), null, 1)}\n`);
writeFileSync(
  join(outDir, 'api.md'),
  `# HTTP API

Made from the table of routes by \`scripts/generate\`; types of every field are in openapi.json, which a running daemon also serves
at \`/v1/openapi.json\` with a page for people at \`/docs\`.

Every call but \`/v1/health\` takes \`Authorization: Bearer <token>\`. Token \`sandbox\` means: an admin token, or the token of that sandbox.
A sandbox is named by its id or its name, a snapshot by its id or \`sandbox:name\`. Failures are \`application/problem+json\`.

The examples below each table run as they are printed, with the address and a token of the daemon in the environment:

\`\`\`sh
export COPPICE_URL=http://127.0.0.1:7310 COPPICE_TOKEN="$(sudo cat /var/lib/coppice/token)"
\`\`\`

${sections.join('\n\n')}

## errors

${errors}
`,
);
