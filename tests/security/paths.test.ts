import { type Route, routes } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { HostCanary } from './host-canary.ts';
import { type RawAnswer, rawCall } from './raw-call.ts';

interface Field {
  readonly name: string;
  readonly isArray: boolean;
}
interface JsonSchema {
  readonly type?: string;
  readonly properties?: Record<string, JsonSchema>;
  readonly anyOf?: JsonSchema[];
  readonly items?: JsonSchema;
}

const takesText = (schema: JsonSchema): boolean =>
  schema.type === 'string' || (schema.anyOf?.some(takesText) ?? false);

const textFields = (schema: z.ZodType | undefined): Field[] => {
  if (schema === undefined) return [];
  const json = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as JsonSchema;
  return Object.entries(json.properties ?? {}).flatMap(([name, property]): Field[] => {
    if (takesText(property)) return [{ name, isArray: false }];
    return property.items !== undefined && takesText(property.items) ? [{ name, isArray: true }] : [];
  });
};

/** Text that is no path and no name: it may say what it likes. */
const freeText = new Set([
  ...[
    'command',
    'stdin',
    'stdin_base64',
    'note',
    'old_string',
    'new_string',
    'label',
    'dockerfile',
    'comment',
  ],
  ...['content', 'query', 'search', 'replace', 'value'],
  ...['title', 'body', 'text', 'description', 'message', 'reason', 'hypothesis', 'status', 'url'],
  ...['commands', 'git_url', 'author_name', 'author_email', 'judge', 'messages'],
]);
/** Names of projects and what belongs to them are titles in a database, as people write them; nothing is found by them on a disk. */
const titles = new Set([
  ...['createProject name', 'deployAgent name', 'startExperiment name', 'takeProjectSnapshot name'],
  ...['compareProjects a', 'compareProjects b', 'writeProjectNote agent', 'evaluateProject model'],
]);
/** By their contract these are paths of the daemon's machine, for administrators. */
const hostPaths = new Set(['source', 'workspace']);

describe('`..`', () => {
  let daemon: RunningDaemon;
  let canary: HostCanary;
  let sandbox: Sandbox;

  beforeAll(async () => {
    canary = new HostCanary();
    daemon = await RunningDaemon.start();
    sandbox = await daemon.client.sandboxes.create({ name: 'victim' });
    await sandbox.snapshot({ name: 'taken' });
  });
  afterAll(async () => {
    await daemon?.[Symbol.asyncDispose]();
    canary?.[Symbol.dispose]();
  });

  const climbs = (): string[] => [
    '..',
    `../../../../../../../..${canary.file}`,
    `x/../../../../../../../..${canary.file}`,
    `/../..${canary.file}`,
  ];

  /** What a call needs besides the field that is tried. */
  const others: Record<string, unknown> = {
    path: '/root/x',
    from: 'victim',
    to: 'victim',
    name: 'innocent',
    source: '/nowhere',
    command: 'true',
    old_string: 'canary',
    new_string: 'changed',
    snapshot: 'taken',
    guest_port: 80,
    signal: 9,
    cols: 80,
    rows: 24,
  };

  const fill = (schema: z.ZodType | undefined): Record<string, unknown> => {
    if (schema === undefined) return {};
    const json = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as { required?: string[] };
    return Object.fromEntries((json.required ?? []).map((name) => [name, others[name] ?? 'x']));
  };

  const send = (
    route: Route,
    params: Record<string, string>,
    query: Record<string, unknown>,
    body: unknown,
  ): Promise<RawAnswer> => {
    const defaults: Record<string, string> = { sandbox: 'victim', snapshot: 'victim:taken' };
    const path = route.path.replaceAll(/:(\w+)/g, (_, name: string) => params[name] ?? defaults[name] ?? '1');
    const search = new URLSearchParams(
      Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]),
    );
    return rawCall(daemon.url, {
      method: route.method,
      path: search.size === 0 ? path : `${path}?${search}`,
      token: daemon.token,
      upgrade: route.answer === 'socket',
      ...(route.upload
        ? { body: 'intruder', headers: { 'content-type': 'application/octet-stream' } }
        : route.body === undefined
          ? {}
          : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
    });
  };

  const judge = (answer: RawAnswer, what: string): void => {
    expect(answer.status, `${what}: ${answer.text}`).toBeLessThan(500);
    expect(answer.text, what).not.toContain(canary.secret);
    expect(canary.damage(), what).toEqual([]);
  };

  test('in the path of any route leads nowhere', async () => {
    for (const [name, route] of Object.entries(routes as Record<string, Route>)) {
      for (const field of Object.keys(route.params?.shape ?? {})) {
        for (const climb of [
          '..%2f..%2fetc',
          '%2e%2e',
          '..',
          '%2e%2e%2f',
          '..%00',
          encodeURIComponent(canary.file),
        ]) {
          const answer = await send(route, { [field]: climb }, fill(route.query), fill(route.body));
          expect([400, 404], `${name} ${field} ${climb}: ${answer.status}`).toContain(answer.status);
          judge(answer, `${name} ${field} ${climb}`);
        }
      }
    }
  });

  test('in any name is refused, and in any path of a sandbox stays inside', async () => {
    let tried = 0;
    const taken = new Set<string>();
    for (const [name, route] of Object.entries(routes as Record<string, Route>)) {
      if (name === 'destroySandbox') continue;
      for (const place of ['query', 'body'] as const) {
        for (const field of textFields(route[place])) {
          if (freeText.has(field.name) || titles.has(`${name} ${field.name}`)) continue;
          for (const climb of climbs()) {
            if (hostPaths.has(field.name) && climb.startsWith('/')) continue;
            const value = field.isArray ? [climb] : climb;
            const [query, body] = [fill(route.query), fill(route.body)];
            (place === 'query' ? query : body)[field.name] = value;
            const what = `${name} ${field.name}=${climb}`;
            const answer = await send(route, {}, query, body);
            judge(answer, what);
            if (!['path', 'file', 'from', 'to', 'cwd', 'sandbox', 'type', 'folder'].includes(field.name))
              if (answer.status !== 400) taken.add(`${name} ${field.name}`);
            tried += 1;
          }
        }
      }
    }
    expect([...taken]).toEqual([]);
    expect(tried).toBeGreaterThan(100);
    expect((await sandbox.exec('echo alive')).stdout).toBe('alive\n');
  });
});
