import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';
import { endingOf, LeftBehind } from '../../driver.ts';
import { isRunning, type ProcessIdentity, readStarted } from '../../machine/process-identity.ts';

const lookAgainMs = 10;

/**
 * There while the memory of a sandbox is being written. Whoever finds it after the death of a daemon must wait for CRIU, which
 * has the processes in its hands, and then let the sandbox go on.
 */
export class CheckpointMark {
  readonly #file: string;

  constructor(runDir: string) {
    this.#file = join(runDir, 'checkpoint.json');
  }

  set(pid?: number): void {
    const started = pid === undefined ? undefined : readStarted(pid);
    writeFileSync(this.#file, JSON.stringify(started === undefined ? {} : { pid, started }), { mode: 0o600 });
  }

  remove(): void {
    rmSync(this.#file, { force: true });
  }

  /**
   * True where a checkpoint was begun and not ended; CRIU no longer runs when this returns. One that does not end in time, or of a
   * sandbox that is to end, is killed: that is an error, since the sandbox is of no use after that.
   */
  async isLeft(deadlineMs: number, ended?: AbortSignal): Promise<boolean> {
    const identity = this.#read();
    if (identity === undefined) return false;
    const endMs = performance.now() + deadlineMs;
    while (identity.pid !== undefined && isRunning(identity as ProcessIdentity)) {
      const ending = endingOf(ended);
      if (ending === 'close')
        throw new LeftBehind('cancelled', 'CRIU is still at work; the next daemon waits for it');
      if (ending !== undefined || performance.now() > endMs) {
        process.kill(-identity.pid, 'SIGKILL');
        throw new CoppiceError(
          'timeout',
          'CRIU, which an earlier daemon had told to write its memory, did not end',
        );
      }
      await sleep(lookAgainMs);
    }
    return true;
  }

  #read(): Partial<ProcessIdentity> | undefined {
    try {
      return JSON.parse(readFileSync(this.#file, 'utf8')) as Partial<ProcessIdentity>;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      // Cut short by the death of who wrote it: before CRIU was started.
      if (error instanceof SyntaxError) return {};
      throw error;
    }
  }
}
