import type { DiskStore } from '@coppice/disks';
import { CoppiceError } from '@coppice/protocol';
import type { Ending, GiveUp } from '@coppice/runtime';

export const allEndings: readonly Ending[] = ['stop', 'destroy', 'close'];

/** Of work whose long part is a copy of a disk: where a copy is made in an instant, nobody needs to end it. */
export const endingsOfCopy = ({ engine }: Pick<DiskStore, 'engine'>): readonly Ending[] =>
  engine === 'btrfs' ? [] : allEndings;

const reasons: Readonly<Record<Ending, string>> = {
  stop: 'the sandbox was stopped meanwhile',
  destroy: 'the sandbox was destroyed meanwhile',
  close: 'the daemon was stopped meanwhile',
};

/** Why work was ended by somebody else than its caller. */
export class WorkEnded extends CoppiceError {
  readonly ending: Ending;

  constructor(ending: Ending) {
    super('cancelled', `it was given up: ${reasons[ending]}`, {
      hint: 'What it had done was taken back. Call again.',
    });
    this.ending = ending;
  }
}

interface Running {
  readonly sandboxId: string;
  readonly endsFor: ReadonlySet<Ending>;
  readonly controller: AbortController;
  readonly done: Promise<void>;
}

export interface WorkOptions {
  readonly sandboxId: string;
  /** Who asked for it, where somebody waits for it. */
  readonly caller?: AbortSignal | undefined;
  readonly endsFor: readonly Ending[];
}

/**
 * What holds the lock of a sandbox for as long as its content makes it. It is given a signal, which tells it to undo what it did and
 * to leave when its caller has gone or something with more right to the sandbox comes.
 */
export class LongWork {
  readonly #running = new Set<Running>();
  #closedBy: Ending | undefined;

  /** The signal is given in all these cases; the second one not for the caller, and with a WorkEnded as its reason. */
  async run<T>(
    { sandboxId, caller, endsFor }: WorkOptions,
    work: (signal: AbortSignal, giveUp: GiveUp) => Promise<T>,
  ): Promise<T> {
    const controller = new AbortController();
    const { promise: done, resolve } = Promise.withResolvers<void>();
    const running = { sandboxId, endsFor: new Set(endsFor), controller, done };
    const ended = controller.signal;
    const signal = caller === undefined ? ended : AbortSignal.any([caller, ended]);
    if (this.#closedBy !== undefined) this.#end(running, this.#closedBy);
    this.#running.add(running);
    try {
      return await work(signal, { signal, ended });
    } catch (error) {
      // Whoever asked for it is told why it was cancelled, and not what that was in the middle of.
      throw ended.aborted && (error as Error).cause === ended.reason ? ended.reason : error;
    } finally {
      this.#running.delete(running);
      resolve();
    }
  }

  /** Tells what works on the sandbox to leave; true when there is any. Who asks for its lock then waits for what is being undone. */
  end(sandboxId: string, ending: Ending): boolean {
    const told = [...this.#running].filter(
      (running) => running.sandboxId === sandboxId && running.endsFor.has(ending),
    );
    for (const running of told) this.#end(running, ending);
    return told.length > 0;
  }

  /** Ends all of it, and what comes from now on at once; settles when nothing runs. */
  async close(ending: Ending): Promise<void> {
    this.#closedBy = ending;
    for (const running of this.#running) this.#end(running, ending);
    while (this.#running.size > 0) await Promise.all([...this.#running].map(({ done }) => done));
  }

  #end({ endsFor, controller }: Running, ending: Ending): void {
    if (endsFor.has(ending)) controller.abort(new WorkEnded(ending));
  }
}
