import { once } from 'node:events';
import type { Socket } from 'node:net';
import type { ByteStream } from '@coppice/runtime';

/** Carries bytes both ways with back-pressure until both sides have ended, or one breaks. */
export async function joinStreams(socket: Socket, stream: ByteStream, onTraffic: () => void): Promise<void> {
  const inward = async () => {
    for await (const chunk of socket as AsyncIterable<Buffer>) {
      onTraffic();
      await stream.write(chunk);
    }
    await stream.end();
  };
  const outward = async () => {
    for await (const chunk of stream.input) {
      onTraffic();
      if (!socket.writable) return;
      if (!socket.write(chunk)) await Promise.race([once(socket, 'drain'), once(socket, 'close')]);
    }
    socket.end();
  };
  try {
    await Promise.all([inward(), outward()]);
  } catch {
    // Either end may break off at any time: then the other is broken off too, which is all that a forward can do.
    socket.destroy();
  } finally {
    stream.close();
  }
}
