import { CoppiceError, type Exit, type RanOut } from '@coppice/protocol';
import type { Machine } from '@coppice/runtime';

const fullDisk = /no space left on device|disk quota exceeded/i;
const scannedBytes = 4096;

/** Finds out what a process ran out of: by what the kernel refused to the sandbox meanwhile, and by what it said. */
export class LimitWatch {
  readonly #machine: Pick<Machine, 'refusals'>;
  readonly #before: ReturnType<Machine['refusals']>;
  #last: Buffer | undefined;

  constructor(machine: Pick<Machine, 'refusals'>) {
    this.#machine = machine;
    this.#before = machine.refusals();
  }

  /** What it wrote last is where it says so. */
  hear(chunk: Buffer): void {
    if (chunk.length > 0) this.#last = Buffer.from(chunk.subarray(-scannedBytes));
  }

  settle(exit: Exit): Exit {
    const ranOut = this.#refused() ?? (exit.exit_code === 0 ? undefined : this.#saidFull());
    return ranOut === undefined ? exit : { ...exit, ran_out: ranOut };
  }

  /** Why the agent was lost, where that is known. */
  explain(error: CoppiceError): CoppiceError {
    const ranOut = error.code === 'unavailable' ? this.#refused() : undefined;
    if (ranOut === undefined) return error;
    const option = ranOut === 'memory' ? '--memory' : '--pids';
    return new CoppiceError('unavailable', `the sandbox ran out of ${ranOut}, and ended`, {
      hint: `Start it again, with more of it (\`coppice update ${option}\`) or for less work at once.`,
      details: { ...error.details, ran_out: ranOut },
      cause: error,
    });
  }

  /** A pipe whose first half was killed may end well: so this is asked whatever the exit. */
  #refused(): RanOut | undefined {
    const { oomKills, pidsRefused } = this.#machine.refusals();
    if (oomKills > this.#before.oomKills) return 'memory';
    return pidsRefused > this.#before.pidsRefused ? 'processes' : undefined;
  }

  #saidFull(): RanOut | undefined {
    return this.#last !== undefined && fullDisk.test(this.#last.toString('latin1')) ? 'disk' : undefined;
  }
}
