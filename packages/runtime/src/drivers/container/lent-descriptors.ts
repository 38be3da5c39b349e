import { spawn } from 'node:child_process';
import { CoppiceError } from '@coppice/protocol';
import type { GiveUp } from '../../driver.ts';
import { runProgram } from '../../programs/run-program.ts';
import { type Bounds, unlessGivenUp } from '../../programs/unless-given-up.ts';

/** The sandbox has no descriptor of the host until it is given back what it lent. */
export interface LentDescriptors {
  giveBack(giveUp?: GiveUp): Promise<void>;
  /** It is given back when this process has gone. */
  leave(): void;
}

const shownChars = 500;
const answerMs = 60_000;
const lastAnswerMs = 2000;

const failure = (what: string, said: string): CoppiceError =>
  new CoppiceError('unavailable', `${what}: ${said.trim().slice(0, shownChars)}`, {
    hint: 'A sandbox that an earlier version started must be stopped and started again first.',
  });

/**
 * Borrows the sockets through which the agent is reached, which no checkpoint can hold. The process that has them outlives the
 * daemon, and gives them back when that is gone.
 */
export const borrowDescriptors = async (
  program: string,
  pid: number,
  { signal }: Bounds,
): Promise<LentDescriptors> => {
  const child = spawn(program, ['lend', String(pid)], { detached: true, env: {}, stdio: 'pipe' });
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => {
    said += chunk.toString('utf8');
  });
  // One that has ended does not read.
  child.stdin.on('error', () => {});
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', (cause) => reject(new CoppiceError('internal', `cannot run ${program}`, { cause })));
    child.once('close', resolve);
  });
  const lent = new Promise<void>((resolve) => child.stdout.once('data', () => resolve()));
  try {
    const over = await unlessGivenUp(
      'the loan of the descriptors of the agent',
      Promise.race([lent.then(() => 'lent' as const), ended]),
      { signal, deadlineMs: answerMs },
    );
    if (over !== 'lent') throw failure('the agent of the sandbox lent nothing', said);
  } catch (error) {
    // What it may have borrowed meanwhile it gives back, and ends.
    child.stdin.end();
    child.unref();
    throw error;
  }
  return {
    giveBack: async ({ ended: ending } = {}) => {
      child.stdin.end();
      // Of a sandbox that is ended next, nobody waits for an answer.
      const deadlineMs = ending?.aborted ? lastAnswerMs : answerMs;
      const code = await unlessGivenUp('the return of the descriptors of the agent', ended, { deadlineMs });
      if (code !== 0) throw failure('the agent of the sandbox took nothing back', said);
    },
    leave: () => child.unref(),
  };
};

/** For a sandbox whose descriptors were lost with whoever had borrowed them. */
export const renewListener = async (program: string, pid: number, runDir: string): Promise<void> => {
  await runProgram([program, 'renew', String(pid), runDir], { deadlineMs: answerMs });
};
