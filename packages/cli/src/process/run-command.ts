import { once } from 'node:events';
import { constants } from 'node:os';
import type { Sandbox } from '@coppice/sdk';
import type { Cli } from '../cli.ts';
import { exitCodeOf } from '../exit-code.ts';

interface RunOptions {
  readonly user?: string;
  readonly cwd?: string;
  readonly env?: Record<string, string>;
  readonly timeout_ms?: number;
}

/** Runs a command with the input and output of this one; returns the exit code. Ctrl-C reaches the command. */
export const runCommand = async (
  cli: Cli,
  sandbox: Sandbox,
  command: string | string[],
  options: RunOptions,
  withInput: boolean,
): Promise<number> => {
  const process = await sandbox.execStream(command, options);
  const interrupt = (): void => {
    process.kill(constants.signals.SIGINT).catch(() => undefined);
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
    return exitCodeOf(exit);
  } finally {
    cli.signal.removeEventListener('abort', interrupt);
    process.close();
  }
};
