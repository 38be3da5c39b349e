import { spawn } from 'node:child_process';
import { connect, type Socket } from 'node:net';
import { CoppiceError } from '@coppice/protocol';

export interface RelayOptions {
  readonly program: string;
  readonly socket: string;
  readonly holdSocket: string;
  readonly netns: string;
  readonly cgroupFiles: readonly string[];
  readonly command: readonly string[];
}

const shownStderrChars = 2000;

/** Starts a relay, which starts the sandbox; it lives as long as the sandbox does, whatever becomes of the daemon. */
export const startRelay = async (options: RelayOptions): Promise<void> => {
  const args = [
    '--socket',
    options.socket,
    '--hold-socket',
    options.holdSocket,
    '--netns',
    options.netns,
    ...options.cgroupFiles.flatMap((file) => ['--cgroup', file]),
    '--',
    ...options.command,
  ];
  await new Promise<void>((resolve, reject) => {
    const child = spawn(options.program, args, {
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { PATH: process.env.PATH },
    });
    const stderr: Buffer[] = [];
    child.stderr.on('data', (chunk: Buffer) => stderr.push(chunk));
    child.stdout.once('data', () => {
      child.stdout.destroy();
      child.stderr.destroy();
      child.unref();
      resolve();
    });
    child.once('error', (cause) =>
      reject(new CoppiceError('internal', `cannot run ${options.program}`, { cause })),
    );
    child.once('close', (code) => {
      const reason = Buffer.concat(stderr).toString('utf8').trim().slice(0, shownStderrChars);
      reject(new CoppiceError('internal', `gVisor did not start the sandbox (exit code ${code}): ${reason}`));
    });
  });
};

/** As long as it is held, the sandbox is given nothing new, and it has taken all that it was given. */
export interface RelayHold {
  release(): void;
}

export const holdRelay = async (holdSocket: string, deadlineMs = 30_000): Promise<RelayHold> => {
  const socket: Socket = connect(holdSocket);
  try {
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(
        () =>
          reject(
            new CoppiceError('timeout', 'the sandbox did not take its input in time', {
              hint: 'It may be out of memory or CPU; try again.',
            }),
          ),
        deadlineMs,
      );
      socket.once('data', () => {
        clearTimeout(timer);
        resolve();
      });
      socket.once('error', (cause) => {
        clearTimeout(timer);
        reject(new CoppiceError('unavailable', 'the relay of the sandbox cannot be reached', { cause }));
      });
    });
  } catch (error) {
    socket.destroy();
    throw error;
  }
  return { release: () => socket.destroy() };
};
