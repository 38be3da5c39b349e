import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { expect, test } from 'vitest';
import { Inflow } from '../src/egress/inflow.ts';

const listen = async (onConnection: (socket: Socket) => void): Promise<Server & AsyncDisposable> => {
  const server = createServer({ allowHalfOpen: true }, onConnection).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return Object.assign(server, {
    [Symbol.asyncDispose]: async () => void server.close(),
  });
};
const portOf = (server: Server): number => (server.address() as AddressInfo).port;

/** A server that sends, an inflow, and a client that reads from it. */
async function stage(size: number): Promise<{ sender: Socket; reader: Socket; digest: string }> {
  const bytes = randomBytes(size);
  const sending = Promise.withResolvers<Socket>();
  await using source = await listen((socket) => {
    socket.on('error', () => {});
    socket.end(bytes);
    sending.resolve(socket);
  });
  const inflow = new Inflow();
  const outside = connect({ port: portOf(source), allowHalfOpen: true, onread: inflow.reading });
  outside.pause();
  await using middle = await listen((inside) => {
    inside.on('error', () => {});
    inflow.into(inside, outside);
    inside.once('close', () => outside.destroy());
  });
  const reader = connect({ port: portOf(middle), allowHalfOpen: true });
  await once(reader, 'connect');
  return { sender: await sending.promise, reader, digest: createHash('sha256').update(bytes).digest('hex') };
}

test('what comes from outside arrives byte for byte, and so does its end', async () => {
  for (const size of [0, 1, 300_000, 32 << 20]) {
    const { reader, digest } = await stage(size);
    const hash = createHash('sha256');
    for await (const chunk of reader) hash.update(chunk as Buffer);
    expect(hash.digest('hex')).toBe(digest);
    reader.destroy();
  }
});

test('a sandbox that does not read stops the server, and gets every byte once it reads', async () => {
  const size = 64 << 20;
  const { sender, reader, digest } = await stage(size);
  reader.pause();
  // Until nothing moves any more: the buffers of the kernel are full, and a piece of memory here.
  for (let before = -1; before !== sender.writableLength || before === -1; ) {
    before = sender.writableLength;
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
  expect(sender.writableLength).toBeGreaterThan(0);
  const hash = createHash('sha256');
  for await (const chunk of reader) hash.update(chunk as Buffer);
  expect(hash.digest('hex')).toBe(digest);
  reader.destroy();
});
