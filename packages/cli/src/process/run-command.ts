import { once } from 'node:events';
import type { ProcessStream, Sandbox } from '@coppice/sdk';
import type { Cli } from '../cli.ts';
import { exitCodeOf } from '../exit-code.ts';
import { Interruption } from '../interruption.ts';
import { noteRanOut } from './ran-out.ts';

interface RunOptions {
  readonly user?: string;
  readonly cwd?: string;
  readonly env?: Record<string, string>;
  readonly timeout_ms?: number;
}

/** Runs a command with the input and output of this one; returns the exit code. A signal that this process gets is passed on. */
export const runCommand = async (
  cli: Cli,
  sandbox: Sandbox,
  command: string | string[],
  options: RunOptions,
  withInput: boolean,
): Promise<number> => {
  const process = await startCommand(cli, sandbox, command, options);
  const interrupt = (): void => {
    process.kill(Interruption.of(cli.signal)?.number).catch(() => undefined);
  };
  cli.signal.addEventListener('abort', interrupt, { once: true });
  const feed = async (): Promise<void> => {
    if (withInput) for await (const chunk of cli.io.stdin) await process.write(chunk as Buffer);
    await process.endInput();
  };
  // A command may end before it has read its input; its exit says the rest.
  feed().catch(() => undefined);
  try {
    for await (const { stream, data, release } of process) {
      const target = cli.io[stream];
      if (!target.write(data, release)) await once(target, 'drain');
    }
    const exit = await process.exit;
    if (exit.timed_out) cli.out.note(`killed after ${(options.timeout_ms ?? 0) / 1000} s: --timeout`);
    noteRanOut(cli, sandbox, exit);
    return exitCodeOf(exit);
  } finally {
    cli.signal.removeEventListener('abort', interrupt);
    process.close();
  }
};

/** Gives up on a signal while the connection is opened. After that the connection has to stay, to pass the signal on. */
const startCommand = async (
  cli: Cli,
  sandbox: Sandbox,
  command: string | string[],
  options: RunOptions,
): Promise<ProcessStream> => {
  cli.signal.throwIfAborted();
  const opening = new AbortController();
  const giveUp = (): void => opening.abort(cli.signal.reason);
  cli.signal.addEventListener('abort', giveUp, { once: true });
  try {
    return await sandbox.execStream(command, { ...options, signal: opening.signal });
  } finally {
    cli.signal.removeEventListener('abort', giveUp);
  }
};
