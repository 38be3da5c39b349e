import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { isRunning, type ProcessIdentity, readStarted } from '../../machine/process-identity.ts';

/**
 * Which launchers work for a home. One outlives its daemon until all that it had begun to start is through, so that whoever sweeps may
 * have to wait for it: what it still starts, it starts after the sweep.
 */
export class LauncherRecord {
  readonly #file: string;
  #earlier: readonly ProcessIdentity[] | undefined;

  constructor(file: string) {
    this.#file = file;
  }

  /** One of this process. Those of earlier ones stay on record for as long as they run. */
  add(pid: number): void {
    const started = readStarted(pid);
    const own = started === undefined ? [] : [{ pid, started }];
    const next = `${this.#file}.new`;
    writeFileSync(next, JSON.stringify([...own, ...this.#earlierOnes.filter(isRunning)]), { mode: 0o600 });
    renameSync(next, this.#file);
  }

  /** Whether one that another daemon started is still at work. */
  get earlierRuns(): boolean {
    return this.#earlierOnes.some(isRunning);
  }

  get #earlierOnes(): readonly ProcessIdentity[] {
    this.#earlier ??= this.#read();
    return this.#earlier;
  }

  #read(): readonly ProcessIdentity[] {
    try {
      return JSON.parse(readFileSync(this.#file, 'utf8')) as ProcessIdentity[];
    } catch (error) {
      // Torn by a loss of power, after which no launcher runs either.
      if ((error as NodeJS.ErrnoException).code === 'ENOENT' || error instanceof SyntaxError) return [];
      throw error;
    }
  }
}
