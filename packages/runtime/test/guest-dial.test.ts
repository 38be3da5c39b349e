import { once as eventOnce } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer, type Server, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type Agent, collect, startAgent } from './guest/start-agent.ts';

let agent: Agent;
const servers: Server[] = [];
beforeAll(async () => {
  agent = await startAgent();
});
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});
afterAll(() => agent.stop());

const listen = async (host: string, onConnection: (socket: Socket) => void): Promise<number> => {
  const server = createServer({ allowHalfOpen: true }, onConnection).listen(0, host);
  servers.push(server);
  await eventOnce(server, 'listening');
  return (server.address() as AddressInfo).port;
};

describe('a connection to a port of the sandbox', () => {
  it('carries bytes both ways, and each way ends by itself', async () => {
    const port = await listen('127.0.0.1', async (socket) => {
      const received = await collect(socket);
      socket.end(Buffer.concat([Buffer.from(`${received.length}:`), received]));
    });
    const stream = await agent.guest.dial(port);
    const sent = Buffer.alloc(2_000_000, 'abc');
    await stream.write(sent);
    await stream.end();
    const answer = await collect(stream.input);
    expect(answer.subarray(0, 8).toString()).toBe('2000000:');
    expect(answer.subarray(8).equals(sent)).toBe(true);
  });

  it('still takes bytes after the server has ended its side', async () => {
    const received = Promise.withResolvers<Buffer>();
    const port = await listen('127.0.0.1', (socket) => {
      socket.end('bye');
      collect(socket).then(received.resolve, received.reject);
    });
    const stream = await agent.guest.dial(port);
    expect((await collect(stream.input)).toString()).toBe('bye');
    await stream.write(Buffer.from('late'));
    await stream.end();
    expect((await received.promise).toString()).toBe('late');
  });

  it('reaches a server that listens on IPv6 only', async () => {
    const port = await listen('::1', (socket) => socket.end('six'));
    const stream = await agent.guest.dial(port);
    await stream.end();
    expect((await collect(stream.input)).toString()).toBe('six');
  });

  it('is closed in the sandbox when it is closed outside', async () => {
    const gone = Promise.withResolvers<void>();
    const port = await listen('127.0.0.1', (socket) => {
      socket.on('error', () => {});
      socket.on('close', () => gone.resolve());
      socket.resume();
      socket.on('end', () => socket.end());
    });
    const stream = await agent.guest.dial(port);
    stream.close();
    await gone.promise;
    await expect(stream.write(Buffer.from('x'))).rejects.toMatchObject({ code: 'cancelled' });
  });

  it('to a port where nothing listens is refused clearly', async () => {
    const port = await listen('127.0.0.1', () => {});
    await new Promise((resolve) => servers.pop()!.close(resolve));
    await expect(agent.guest.dial(port)).rejects.toMatchObject({
      code: 'not_found',
      message: expect.stringMatching(`port ${port}`),
    });
    await expect(agent.guest.dial(0)).rejects.toMatchObject({ code: 'invalid_argument' });
    await expect(agent.guest.dial(70_000)).rejects.toMatchObject({ code: 'invalid_argument' });
  });
});
