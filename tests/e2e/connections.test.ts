import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

let daemon: RunningDaemon;
beforeAll(async () => {
  daemon = await RunningDaemon.start();
});
afterAll(() => daemon[Symbol.asyncDispose]());

/** Asks for a WebSocket by hand, and never closes the connection from this side. */
const askForSocket = async (sandbox: string, token: string): Promise<{ socket: Socket; answer: string }> => {
  const { port } = new URL(daemon.url);
  const socket = connect({ host: '127.0.0.1', port: Number(port), allowHalfOpen: true });
  await once(socket, 'connect');
  socket.write(
    [
      `GET /v1/sandboxes/${sandbox}/exec/stream HTTP/1.1`,
      `Host: 127.0.0.1:${port}`,
      `Authorization: Bearer ${token}`,
      'Connection: Upgrade',
      'Upgrade: websocket',
      'Sec-WebSocket-Version: 13',
      'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
      '\r\n',
    ].join('\r\n'),
  );
  const [chunk] = (await once(socket, 'data')) as [Buffer];
  return { socket, answer: chunk.toString().split('\r\n')[0] ?? '' };
};

describe('connections', () => {
  it('for a WebSocket that is refused are closed by the daemon', async () => {
    const { socket, answer } = await askForSocket('nobody', 'wrong');
    expect(answer).toContain('401');
    await once(socket, 'end');
    socket.destroy();
  });

  it('that stay open do not keep the daemon from stopping', async () => {
    const sandbox = await daemon.client.sandboxes.create({});
    const { socket, answer } = await askForSocket(sandbox.id, daemon.token);
    expect(answer).toContain('101');
    await daemon.restart();
    expect((await daemon.client.sandboxes.at(sandbox.id).exec('echo on')).stdout).toBe('on\n');
    socket.destroy();
    await sandbox.destroy();
  });
});
