import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { isRunning, type ProcessIdentity, readStarted } from '../../machine/process-identity.ts';

/** There while the memory of a sandbox is being written: whoever finds it must let the sandbox go on. */
export class PausedMark {
  readonly #file: string;

  constructor(file: string) {
    this.#file = file;
  }

  /** With the runsc that writes it, once there is one. */
  set(pid?: number): void {
    const started = pid === undefined ? undefined : readStarted(pid);
    writeFileSync(this.#file, started === undefined ? '' : JSON.stringify({ pid, started }), { mode: 0o600 });
  }

  remove(): void {
    rmSync(this.#file, { force: true });
  }

  /** True where it is there. The runsc that a daemon left at work ends: nobody waits for what it writes. */
  isLeft(): boolean {
    const text = this.#read();
    if (text === undefined) return false;
    const identity = parse(text);
    if (identity !== undefined && isRunning(identity)) process.kill(-identity.pid, 'SIGKILL');
    return true;
  }

  #read(): string | undefined {
    try {
      return readFileSync(this.#file, 'utf8');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw error;
    }
  }
}

function parse(text: string): ProcessIdentity | undefined {
  try {
    return text === '' ? undefined : (JSON.parse(text) as ProcessIdentity);
  } catch {
    // Cut short by the death of who wrote it.
    return undefined;
  }
}
