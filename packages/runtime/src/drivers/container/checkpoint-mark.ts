import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isRunning, type ProcessIdentity, readStarted } from '../../machine/process-identity.ts';

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

  /** True where a checkpoint was begun and not ended; CRIU no longer runs when this returns. */
  async isLeft(lookAgainMs = 10): Promise<boolean> {
    const identity = this.#read();
    if (identity === undefined) return false;
    while (identity.pid !== undefined && isRunning(identity as ProcessIdentity)) await sleep(lookAgainMs);
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
