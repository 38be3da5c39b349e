import { createHash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import http from 'node:http';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { NodeSocket } from '../src/node/node-socket.ts';

const binary = 2;
const closing = 8;
const ping = 9;
const final = 0x80;
const KiB = 1024;

/** A frame as servers send it. */
const frame = (opcode: number, payload: Uint8Array, flags = final): Buffer => {
  const { length } = payload;
  const header = Buffer.alloc(length < 126 ? 2 : length < 65_536 ? 4 : 10);
  header[0] = flags | opcode;
  header[1] = header.length === 2 ? length : header.length === 4 ? 126 : 127;
  if (header.length === 4) header.writeUInt16BE(length, 2);
  if (header.length === 10) header.writeBigUInt64BE(BigInt(length), 2);
  return Buffer.concat([header, payload]);
};

/** No two alike, so that what lands in the wrong place is seen. */
const numbered = (bytes: number): Buffer => {
  const payload = Buffer.alloc(bytes);
  for (let at = 0; at + 4 <= bytes; at += 4) payload.writeUInt32LE(bytes + at, at);
  return payload;
};

const sizes = [
  0,
  1,
  125,
  126,
  127,
  65_535,
  65_536,
  64 * KiB + 1,
  256 * KiB - 10,
  256 * KiB,
  512 * KiB - 10,
  512 * KiB,
  3 * 1024 * KiB,
];
/** In the order of these sizes, several times over: more than is read into one piece of memory. */
const payloads = [...sizes, ...sizes.toReversed(), ...Array(60).fill(64 * KiB + 1)].map(numbered);

let directory: string;
let path: string;
let server: http.Server;
/** Those that were upgraded, which a server does not close by itself. */
let sockets: Socket[];
/** The client has seen the end of the handshake, and nothing more. */
let opened: PromiseWithResolvers<void>;
let serve: (socket: Socket, switched: Buffer) => Promise<void>;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'coppice-sdk-'));
  path = join(directory, 's.sock');
  sockets = [];
  opened = Promise.withResolvers();
  server = http.createServer().on('upgrade', (request, socket: Socket) => {
    const accept = createHash('sha1')
      .update(`${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
      .digest('base64');
    const head = [
      'HTTP/1.1 101 Switching Protocols',
      'upgrade: websocket',
      'connection: upgrade',
      `sec-websocket-accept: ${accept}`,
    ];
    // Whoever has read all that it wants goes away, whatever is still to come.
    socket.on('error', () => {}).resume();
    sockets.push(socket);
    void serve(socket, Buffer.from(`${head.join('\r\n')}\r\n\r\n`));
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
});
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await new Promise((resolve) => server.close(resolve));
  await rm(directory, { recursive: true, force: true });
});

const open = async (): Promise<NodeSocket> => {
  const endpoint = { url: new URL('http://localhost'), socketPath: path, token: undefined };
  const socket = await NodeSocket.open(endpoint, path, '/messages');
  opened.resolve();
  return socket;
};

/** Every second one is kept to the end, the others are given back at once. */
const receive = async (socket: NodeSocket): Promise<Buffer[]> => {
  const copies: Buffer[] = [];
  const kept: { readonly data: Uint8Array; readonly at: number }[] = [];
  for await (const message of socket) {
    if (typeof message === 'string') throw new Error(`a text came: ${message}`);
    copies.push(Buffer.from(message.data));
    if (copies.length % 2 === 0) message.release();
    else kept.push({ data: message.data, at: copies.length - 1 });
  }
  for (const { data, at } of kept)
    if (!copies[at]!.equals(data)) throw new Error(`message ${at} has changed`);
  return copies;
};

const differing = (got: readonly Buffer[], wanted: readonly Buffer[]): number[] =>
  wanted.flatMap((payload, at) => (got[at]?.equals(payload) ? [] : [at]));

const write = async (socket: Socket, bytes: Buffer, stepBytes: number): Promise<void> => {
  for (let at = 0; at < bytes.length; at += stepBytes) {
    if (!socket.write(bytes.subarray(at, at + stepBytes)))
      await new Promise((resolve) => socket.once('drain', resolve));
    await turn();
  }
};

describe('messages are the same however they are cut on their way', () => {
  test.each([4093, 65_536 + 3, 200_000, 64 * 1024 * KiB])('into steps of %i bytes', async (stepBytes) => {
    serve = async (socket, switched) => {
      socket.write(switched);
      await opened.promise;
      await write(
        socket,
        Buffer.concat([
          ...payloads.map((payload) => frame(binary, payload)),
          frame(closing, Buffer.alloc(0)),
        ]),
        stepBytes,
      );
      socket.end();
    };
    const got = await receive(await open());
    expect({ count: got.length, differing: differing(got, payloads) }).toEqual({
      count: payloads.length,
      differing: [],
    });
  });

  test('byte by byte, with pings between them and in parts', async () => {
    const small = [0, 1, 125, 126, 300].map(numbered);
    const parts = numbered(400);
    serve = async (socket, switched) => {
      socket.write(switched);
      await opened.promise;
      const frames = small.flatMap((payload) => [frame(binary, payload), frame(ping, Buffer.from('there?'))]);
      frames.push(frame(binary, parts.subarray(0, 130), 0), frame(0, parts.subarray(130)));
      await write(socket, Buffer.concat([...frames, frame(closing, Buffer.alloc(0))]), 1);
      socket.end();
    };
    const got = await receive(await open());
    expect({ count: got.length, differing: differing(got, [...small, parts]) }).toEqual({
      count: 6,
      differing: [],
    });
  });

  test('when the first of them comes with the answer to the handshake', async () => {
    serve = async (socket, switched) => {
      const frames = Buffer.concat(payloads.map((payload) => frame(binary, payload)));
      socket.write(Buffer.concat([switched, frames.subarray(0, 1000)]));
      await turn();
      await write(socket, Buffer.concat([frames.subarray(1000), frame(closing, Buffer.alloc(0))]), 150_001);
      socket.end();
    };
    const got = await receive(await open());
    expect({ count: got.length, differing: differing(got, payloads) }).toEqual({
      count: payloads.length,
      differing: [],
    });
  });
});
