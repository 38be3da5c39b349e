import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';

const run = promisify(execFile);
const program = join(
  import.meta.dirname,
  '../../node_modules/@modelcontextprotocol/conformance/dist/index.js',
);

/** The others ask for tools, prompts and resources of a server made for them, or for features that we do not declare. */
const scenarios = [
  'server-initialize',
  'ping',
  'tools-list',
  'resources-list',
  'prompts-list',
  'server-sse-multiple-streams',
  'dns-rebinding-protection',
];

let daemon: RunningDaemon;
let proxy: Server;
let url: string;

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
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  url = `http://localhost:${(proxy.address() as AddressInfo).port}/mcp`;
});
afterAll(async () => {
  proxy?.closeAllConnections();
  await new Promise((resolve) => (proxy === undefined ? resolve(undefined) : proxy.close(resolve)));
  await daemon?.[Symbol.asyncDispose]();
});

test.each(scenarios)('the conformance suite is content: %s', async (scenario) => {
  const directory = await mkdtemp(join(tmpdir(), 'coppice-conformance-'));
  try {
    const args = [program, 'server', '--url', url, '--scenario', scenario];
    const { stdout } = await run(process.execPath, args, { cwd: directory, maxBuffer: 1 << 24 }).catch(
      (error: { stdout?: string; stderr?: string }) => {
        throw new Error(`${error.stdout ?? ''}${error.stderr ?? ''}`);
      },
    );
    expect(stdout).toMatch(/Passed: [1-9]\d*\/\d+, 0 failed/);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});
