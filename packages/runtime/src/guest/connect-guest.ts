import { closeSync, openSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { basename, dirname } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import type { Guest } from './guest.ts';
import { GuestClient } from './guest-client.ts';
import { GuestLink, type GuestLinkOptions } from './guest-link.ts';

/** The kernel's limit on the path of a socket, with its terminator. */
const socketPathMaxBytes = 108;

/**
 * What all links read into: each takes out what it needs before the next one reads. A buffer for every read would be garbage by
 * the gigabyte.
 */
const readBuffer = Buffer.allocUnsafeSlow(256 << 10);

const connectSocket = async (path: string): Promise<Socket> => {
  const tooLong = Buffer.byteLength(path) >= socketPathMaxBytes;
  // A longer path is reached through an open descriptor of its directory.
  const directory = tooLong ? openSync(dirname(path), 'r') : undefined;
  const short = directory === undefined ? path : `/proc/self/fd/${directory}/${basename(path)}`;
  try {
    return await new Promise<Socket>((resolve, reject) => {
      const socket: Socket = connect({
        path: short,
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
  } finally {
    if (directory !== undefined) closeSync(directory);
  }
};

/** Connects to the agent that listens on a unix socket. */
export const connectGuest = async (socketPath: string, options: GuestLinkOptions = {}): Promise<Guest> => {
  let socket: Socket;
  try {
    socket = await connectSocket(socketPath);
  } catch (cause) {
    throw new CoppiceError('unavailable', `cannot reach the agent of the sandbox at ${socketPath}`, {
      hint: 'Look whether the sandbox still runs.',
      cause,
    });
  }
  return new GuestClient(await GuestLink.open(socket, options));
};
