import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { conformanceServer } from './conformance-server.ts';

const run = promisify(execFile);
const program = join(
  import.meta.dirname,
  '../../node_modules/@modelcontextprotocol/conformance/dist/index.js',
);

const ofTheDaemon = [
  'server-initialize',
  'ping',
  'tools-list',
  'resources-list',
  'prompts-list',
  'server-sse-multiple-streams',
  'dns-rebinding-protection',
];

/** They call tools with names of their own, which a server with the daemon's protocol code has. */
const ofItsProtocol = [
  'tools-call-simple-text',
  'tools-call-image',
  'tools-call-audio',
  'tools-call-embedded-resource',
  'tools-call-mixed-content',
  'tools-call-error',
  'tools-call-with-progress',
  'json-schema-2020-12',
];

const noLogging = 'logging is not declared: what happens is told by progress, workspace_logs and exec_poll';
const noQuestions = 'the server asks clients for nothing, as each request stands alone';
const noSubscriptions = 'subscriptions are not declared: exec_poll waits for what is new';
const ownResources = 'asks for resources of its own; server.test.ts reads text, binary and templates of ours';
const ownPrompts = 'asks for prompts of its own; server.test.ts gets ours';

const doNotApply: Readonly<Record<string, string>> = {
  'logging-set-level': noLogging,
  'tools-call-with-logging': noLogging,
  'completion-complete': 'completions are not declared',
  'tools-call-sampling': noQuestions,
  'tools-call-elicitation': noQuestions,
  'elicitation-sep1034-defaults': noQuestions,
  'elicitation-sep1330-enums': noQuestions,
  'server-sse-polling': 'streams are not resumed: a call whose caller left is cancelled',
  'resources-read-text': ownResources,
  'resources-read-binary': ownResources,
  'resources-templates-read': ownResources,
  'resources-subscribe': noSubscriptions,
  'resources-unsubscribe': noSubscriptions,
  'prompts-get-simple': ownPrompts,
  'prompts-get-with-args': ownPrompts,
  'prompts-get-embedded-resource': ownPrompts,
  'prompts-get-with-image': ownPrompts,
};

let daemon: RunningDaemon;
let proxy: Server;
let fixture: Server;

const urlOf = (server: Server): string => `http://localhost:${(server.address() as AddressInfo).port}/mcp`;
const listen = (server: Server): Promise<void> =>
  new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const stop = async (server: Server | undefined): Promise<void> => {
  server?.closeAllConnections();
  await new Promise((resolve) => (server === undefined ? resolve(undefined) : server.close(resolve)));
};

/** The conformance client has no place for a token: this adds it, and passes on everything else as it is. */
const withToken = (): Server =>
  createServer((incoming, outgoing) => {
    const target = new URL(incoming.url ?? '/', daemon.url);
    const headers = { ...incoming.headers, authorization: `Bearer ${daemon.token}` };
    const sent = request(target, { method: incoming.method, headers }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(outgoing);
    });
    outgoing.on('close', () => sent.destroy());
    sent.on('error', () => outgoing.destroy());
    incoming.pipe(sent);
  });

beforeAll(async () => {
  daemon = await RunningDaemon.start({ image: false });
  proxy = withToken();
  fixture = conformanceServer();
  await Promise.all([listen(proxy), listen(fixture)]);
});
afterAll(async () => {
  await Promise.all([stop(proxy), stop(fixture)]);
  await daemon?.[Symbol.asyncDispose]();
});

const conformance = async (...args: string[]): Promise<string> => {
  const directory = await mkdtemp(join(tmpdir(), 'coppice-conformance-'));
  try {
    const options = { cwd: directory, maxBuffer: 1 << 24 };
    const { stdout } = await run(process.execPath, [program, ...args], options).catch(
      (error: { stdout?: string; stderr?: string }) => {
        throw new Error(`${error.stdout ?? ''}${error.stderr ?? ''}`);
      },
    );
    return stdout;
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
};

const check = async (scenario: string, server: Server): Promise<void> => {
  const said = await conformance('server', '--url', urlOf(server), '--scenario', scenario);
  expect(said).toMatch(/Passed: [1-9]\d*\/\d+, 0 failed/);
};

test.each(ofTheDaemon)('the conformance suite is content: %s', (scenario) => check(scenario, proxy));

test.each(ofItsProtocol)('the conformance suite is content with the protocol code: %s', (scenario) =>
  check(scenario, fixture),
);

test('every scenario of the conformance suite is run, or there is a reason why it does not apply', async () => {
  const listed = (await conformance('list', '--server')).matchAll(/^ {2}- (\S+)/gm);
  expect([...listed].map((match) => match[1]).sort()).toEqual(
    [...ofTheDaemon, ...ofItsProtocol, ...Object.keys(doNotApply)].sort(),
  );
});
