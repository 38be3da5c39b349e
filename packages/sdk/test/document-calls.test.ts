import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import tls from 'node:tls';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { DocumentCalls } from '../src/node/document-calls.ts';

// A server by hand: it shows what goes over the wire, and does what Node's own never would.
let directory: string;
let path: string;
let server: net.Server;
let sockets: Set<net.Socket>;
let onRequest: (text: string, socket: net.Socket) => void;
let calls: DocumentCalls;

const serve = (socket: net.Socket): void => {
  sockets.add(socket);
  socket.on('close', () => sockets.delete(socket));
  socket.on('error', () => undefined);
  socket.on('data', (bytes) => onRequest(bytes.toString(), socket));
};

const ok = (text = '{}', head = 'Keep-Alive: timeout=72'): string =>
  `HTTP/1.1 200 OK\r\n${head}\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`;
const get = { method: 'GET', path: '/v1/health' };
const post = { method: 'POST', path: '/v1/sandboxes', body: '{"name":"ü"}' };
const closed = async (socket: net.Socket): Promise<void> => {
  while (sockets.has(socket)) await new Promise((resolve) => setTimeout(resolve, 5));
};

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-sdk-'));
  path = join(directory, 's.sock');
  sockets = new Set();
  server = net.createServer(serve);
  await new Promise<void>((resolve) => server.listen(path, resolve));
  calls = new DocumentCalls({ url: new URL('http://localhost/base/'), socketPath: path, token: 'secret' });
});
afterEach(async () => {
  calls.close();
  for (const socket of sockets) socket.destroy();
  await new Promise((resolve) => server.close(resolve));
  rmSync(directory, { recursive: true, force: true });
});

test('a call is one write with its length in bytes, its token and the path of the endpoint before its own', async () => {
  const seen: string[] = [];
  onRequest = (text, socket) => {
    seen.push(text);
    socket.write(ok('{"name":"ä"}'));
  };
  expect((await calls.call(post)).text).toBe('{"name":"ä"}');
  expect(seen).toEqual([
    'POST /base/v1/sandboxes HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer secret\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{"name":"ü"}',
  ]);
});

test('a path that would begin another line is not sent', async () => {
  const seen: string[] = [];
  onRequest = (text) => seen.push(text);
  for (const odd of ['/v1/x HTTP/1.1\r\nx: y', '/v1/x\n', '/v1/ü', '/v1/a b'])
    await expect(calls.call({ method: 'GET', path: odd })).rejects.toThrow('not a path');
  expect(seen).toEqual([]);
});

test('a connection is used again, and by one call at a time', async () => {
  const waiting: net.Socket[] = [];
  onRequest = (_, socket) => {
    waiting.push(socket);
    if (waiting.length === 2) for (const each of waiting) each.write(ok());
    if (waiting.length > 2) socket.write(ok());
  };
  await Promise.all([calls.call(get), calls.call(get)]);
  expect(waiting[0]).not.toBe(waiting[1]);
  for (let count = 0; count < 3; count += 1) await calls.call(get);
  expect(sockets.size).toBe(2);
});

test.each([
  ['that the daemon closed is not used again', (socket: net.Socket) => socket.end()],
  [
    'on which something comes that nobody asked for is not used again',
    (socket: net.Socket) => socket.write(ok()),
  ],
])('an idle connection %s', async (_, spoil) => {
  let first: net.Socket | undefined;
  onRequest = (_text, socket) => {
    first ??= socket;
    socket.write(ok());
  };
  await calls.call(post);
  const idle = first as net.Socket;
  spoil(idle);
  await closed(idle);
  await expect(calls.call(post)).resolves.toMatchObject({ status: 200 });
});

test.each([
  [get, true],
  [post, false],
])('$method is made again when its connection had been given up meanwhile: %s', async (call, isRepeated) => {
  let asked = 0;
  onRequest = (_, socket) => {
    asked += 1;
    // The second one meets a daemon that gives the connection up just as the question arrives.
    if (asked === 2) socket.destroy();
    else socket.write(ok());
  };
  await calls.call(call);
  const second = calls.call(call);
  if (isRepeated) await expect(second).resolves.toMatchObject({ status: 200 });
  else await expect(second).rejects.toMatchObject({ code: 'ECONNRESET' });
  expect(asked).toBe(isRepeated ? 3 : 2);
});

test('a refusal that comes before all of the body was sent is the answer', async () => {
  onRequest = (_, socket) => {
    socket.pause();
    socket.write('HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}');
  };
  const body = JSON.stringify('x'.repeat(32 << 20));
  await expect(calls.call({ ...post, body })).resolves.toMatchObject({ status: 413 });
});

test('a call that was cancelled before it began is not made, also not on a connection that stands', async () => {
  let asked = 0;
  onRequest = (_, socket) => {
    asked += 1;
    socket.write(ok());
  };
  await calls.call(post);
  const cancelled = { ...post, signal: AbortSignal.abort() };
  await expect(calls.call(cancelled)).rejects.toMatchObject({ code: 'ABORT_ERR' });
  await expect(calls.call(cancelled)).rejects.toMatchObject({ code: 'ABORT_ERR' });
  await calls.call(post);
  expect(asked).toBe(2);
});

test('an idle connection keeps no program from ending', async () => {
  onRequest = (_, socket) => socket.write(ok());
  const program = `
    import { DocumentCalls } from ${JSON.stringify(new URL('../src/node/document-calls.ts', import.meta.url).href)};
    const calls = new DocumentCalls({ url: new URL('http://localhost'), socketPath: ${JSON.stringify(path)}, token: undefined });
    console.log((await calls.call({ method: 'GET', path: '/' })).status);`;
  const { spawn } = await import('node:child_process');
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let said = '';
  child.stdout.on('data', (text) => {
    said += text;
  });
  expect(await new Promise((resolve) => child.on('close', resolve))).toBe(0);
  expect(said).toBe('200\n');
});

test('a daemon behind TLS is reached, and only by a name that its certificate has', async () => {
  const key = join(directory, 'key.pem');
  const certificate = join(directory, 'certificate.pem');
  const openssl = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=localhost'];
  execFileSync('openssl', [...openssl, '-keyout', key, '-out', certificate], { stdio: 'ignore' });
  const secure = tls.createServer({ key: readFileSync(key), cert: readFileSync(certificate) }, serve);
  onRequest = (_, socket) => socket.write(ok());
  await new Promise<void>((resolve) => secure.listen(0, '127.0.0.1', resolve));
  try {
    const { port } = secure.address() as net.AddressInfo;
    const at = (host: string) =>
      new DocumentCalls({ url: new URL(`https://${host}:${port}`), socketPath: undefined, token: undefined });
    await expect(at('localhost').call(get)).rejects.toMatchObject({ code: 'DEPTH_ZERO_SELF_SIGNED_CERT' });
    tls.setDefaultCACertificates([readFileSync(certificate, 'utf8')]);
    const known = at('localhost');
    await expect(known.call(get)).resolves.toMatchObject({ status: 200 });
    known.close();
    await expect(at('127.0.0.1').call(get)).rejects.toMatchObject({ code: 'ERR_TLS_CERT_ALTNAME_INVALID' });
  } finally {
    await new Promise((resolve) => secure.close(resolve));
  }
});
