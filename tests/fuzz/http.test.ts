import { problemSchema, type Route, type RouteName, routes } from '@coppice/protocol';
import { RunningDaemon } from '@coppice/testkit';
import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { settings } from '../property/seed.ts';
import { type RawAnswer, rawCall } from '../security/raw-call.ts';
import { type FuzzRequest, type Known, requestFor } from './request-arbitrary.ts';

const table = Object.entries(routes as Record<string, Route>) as [RouteName, Route][];
/** Fetches a distribution or copies a directory of the machine: what it takes is tried, not what it then does. */
const slow: readonly RouteName[] = ['makeImage'];
/** Waits for as long as it is asked to: who goes away meanwhile harms nothing. */
const waiting: readonly RouteName[] = ['waitForPort'];
const waitMs = 300;
const requestsPerRoute = 25;
const answerDeadlineMs = 60_000;

/** An error that is the caller's or the machine's, foreseen either way. A timeout that was asked for is an answer. */
const foreseen = new Set([501, 503, 504, 507]);

const wellFormed = (text: string): string => text.toWellFormed();

describe('the HTTP API', () => {
  let daemon: RunningDaemon;
  let pid: number;
  let known: Known;

  beforeAll(async () => {
    daemon = await RunningDaemon.start({
      config: { limits: { max_sandboxes: 6 }, defaults: { memory_mb: 64 } },
    });
    pid = daemon.pid;
    known = { sandboxes: ['first', 'second'], snapshots: ['first:taken', 'second:taken'] };
    for (const name of known.sandboxes) await replenish(name);
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  /** Calls destroy, rename, stop and pause; each route finds what it needs again. */
  async function replenish(name: string): Promise<void> {
    const { client } = daemon;
    const found = (await client.sandboxes.list()).find((sandbox) => sandbox.name === name);
    if (found !== undefined && found.state !== 'running') await client.sandboxes.at(found.id).destroy();
    if (found?.state !== 'running') await client.sandboxes.create({ name });
    const taken = await client.sandboxes.at(name).snapshots();
    if (!taken.some((snapshot) => snapshot.name === 'taken'))
      await client.sandboxes.at(name).snapshot({ name: 'taken' });
  }

  async function tidy(): Promise<void> {
    const { client } = daemon;
    for (const { id, name } of await client.sandboxes.list())
      if (!known.sandboxes.includes(name)) await client.sandboxes.at(id).destroy();
    for (const name of known.sandboxes) await replenish(name);
  }

  const send = (
    route: Route,
    { params, query, body }: FuzzRequest,
    signal = AbortSignal.timeout(answerDeadlineMs),
  ): Promise<RawAnswer> => {
    const path = route.path.replaceAll(/:(\w+)/g, (_, name: string) =>
      encodeURIComponent(wellFormed(params[name] ?? '')),
    );
    const search = query
      .map(
        ([name, value]) => `${encodeURIComponent(wellFormed(name))}=${encodeURIComponent(wellFormed(value))}`,
      )
      .join('&');
    const payload = body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body);
    return rawCall(
      daemon.url,
      {
        method: route.method,
        path: search === '' ? path : `${path}?${search}`,
        token: daemon.token,
        upgrade: route.answer === 'socket',
        ...(payload === undefined
          ? {}
          : {
              body: payload,
              headers: { 'content-type': route.upload ? 'application/octet-stream' : 'application/json' },
            }),
      },
      signal,
    );
  };

  /** Undefined where it still waited when the caller went away. */
  const ask = async (name: RouteName, route: Route, request: FuzzRequest): Promise<RawAnswer | undefined> => {
    if (!waiting.includes(name)) return send(route, request);
    const gone = AbortSignal.timeout(waitMs);
    return send(route, request, gone).catch((error: unknown) => {
      if (!gone.aborted) throw error;
      return undefined;
    });
  };

  test.each(table.filter(([name]) => !slow.includes(name)))(
    'answers whatever is sent to %s, with an answer or a problem',
    async (name, route) => {
      await fc.assert(
        fc
          .asyncProperty(requestFor(route, known), async (request) => {
            const answer = await ask(name, route, request);
            if (answer === undefined) return;
            const { status, headers, text } = answer;
            if (status >= 500 && !foreseen.has(status)) throw new Error(`${status}: ${text}`);
            if (status < 400) return;
            expect(headers['content-type']).toMatch(/^application\/problem\+json/);
            const problem = problemSchema.parse(JSON.parse(text));
            expect(problem.status).toBe(status);
            expect(problem.detail).not.toBe('');
            expect(problem.hint).not.toBe('');
          })
          .afterEach(name === 'createSandbox' || name.startsWith('fork') ? tidy : async () => undefined),
        { ...settings<[FuzzRequest]>(requestsPerRoute) },
      );
      await tidy();
      expect((await daemon.client.health()).status).toBe('ok');
      expect(daemon.pid).toBe(pid);
    },
  );
});
