import { connect, type Socket } from 'node:net';
import { CoppiceError } from '@coppice/protocol';
import { type Bounds, unlessGivenUp } from '../programs/unless-given-up.ts';
import type { Guest } from './guest.ts';
import { GuestClient } from './guest-client.ts';
import { GuestLink, type GuestLinkOptions } from './guest-link.ts';
import { atSocket } from './socket-path.ts';

/**
 * What all links read into: each takes out what it needs before the next one reads. A buffer for every read would be garbage by
 * the gigabyte.
 */
const readBuffer = Buffer.allocUnsafeSlow(256 << 10);

const connectSocket = (path: string): Promise<Socket> =>
  new Promise((resolve, reject) => {
    const socket: Socket = connect({
      path,
      onread: {
        buffer: readBuffer,
        callback: (length, bytes) => {
          socket.emit('data', Buffer.from(bytes.buffer, bytes.byteOffset, length));
          return true;
        },
      },
    });
    socket.once('connect', () => {
      socket.off('error', reject);
      resolve(socket);
    });
    socket.once('error', reject);
  });

/** Connects to the agent that listens on a unix socket. */
export const connectGuest = async (socketPath: string, options: GuestLinkOptions = {}): Promise<Guest> => {
  let socket: Socket;
  try {
    socket = await atSocket(socketPath, connectSocket);
  } catch (cause) {
    throw new CoppiceError('unavailable', `cannot reach the agent of the sandbox at ${socketPath}`, {
      hint: 'Look whether the sandbox still runs.',
      cause,
    });
  }
  return new GuestClient(await GuestLink.open(socket, options));
};

/** A link that nobody wants any more when it stands is closed. */
export const connectUnlessGivenUp = async (connect: () => Promise<Guest>, bounds: Bounds): Promise<Guest> => {
  const connecting = connect();
  try {
    return await unlessGivenUp('the connection to the agent of the sandbox', connecting, bounds);
  } catch (error) {
    connecting.then(
      (guest) => guest.close(),
      () => {},
    );
    throw error;
  }
};
