import { once } from 'node:events';
import type { Sandbox } from '@coppice/sdk';
import type { Cli } from '../cli.ts';
import { exitCodeOf } from '../exit-code.ts';
import { noteRanOut } from './ran-out.ts';
import { TerminalModes } from './terminal-modes.ts';

const detachKey = 0x1d;
const endOfInput = Buffer.from([0x04]);
export const detachKeyName = 'Ctrl-]';

/** Joins this terminal with one of a sandbox until its program ends or the detach key is typed; returns the exit code. */
export const useTerminal = async (cli: Cli, sandbox: Sandbox, terminal: number): Promise<number> => {
  const { stdin, stdout } = cli.io;
  const session = await sandbox.terminals.attach(terminal, { signal: cli.signal });
  const modes = new TerminalModes();
  let detached = false;
  const type = (chunk: Buffer): void => {
    const at = chunk.indexOf(detachKey);
    const typed = at < 0 ? chunk : chunk.subarray(0, at);
    // What is typed after the program has ended reaches nobody.
    const sent = typed.length > 0 ? session.write(typed).catch(() => undefined) : Promise.resolve();
    if (at >= 0) {
      detached = true;
      sent.then(() => session.detach());
    }
  };
  const resize = (): void => {
    const { cols, rows } = terminalSize(stdout);
    session.resize(cols, rows).catch(() => undefined);
  };
  // Input that is no terminal is at its end for good. A program that only starts, or that changes the mode of its
  // terminal, loses an end that came too early: it is said again until somebody heard it.
  let ending: NodeJS.Timeout | undefined;
  const sayEnd = (): void => {
    session.write(endOfInput).catch(() => undefined);
  };
  const end = (): void => {
    if (detached) return;
    sayEnd();
    ending = setInterval(sayEnd, 500);
  };
  if (stdout.isTTY) {
    resize();
    stdout.on('resize', resize);
  }
  if (stdin.isTTY) stdin.setRawMode(true);
  else stdin.once('end', end);
  stdin.on('data', type);
  try {
    for await (const data of session) {
      modes.follow(data);
      if (!stdout.write(data)) await once(stdout, 'drain');
    }
  } finally {
    clearInterval(ending);
    stdin.off('end', end);
    stdin.off('data', type);
    stdin.pause();
    if (stdin.isTTY) stdin.setRawMode(false);
    stdout.off('resize', resize);
    session.detach();
  }
  if (detached) {
    if (stdout.isTTY) stdout.write(modes.undo());
    cli.out.note(
      `\nleft terminal ${terminal}; come back with \`coppice shell ${sandbox.name} --attach ${terminal}\``,
    );
    return 0;
  }
  if (session.exit === undefined) return 0;
  noteRanOut(cli, sandbox, session.exit);
  return exitCodeOf(session.exit);
};

/** A terminal that knows no size says 0, as that of a pipe to `script` does. */
export const terminalSize = (stdout: NodeJS.WriteStream): { cols: number; rows: number } => ({
  cols: stdout.columns || 80,
  rows: stdout.rows || 24,
});
