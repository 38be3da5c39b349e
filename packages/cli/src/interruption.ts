import { constants } from 'node:os';
import { CoppiceError } from '@coppice/protocol/errors';

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** The reason of a command's abort signal: which signal asked this process to end. */
export class Interruption extends CoppiceError {
  readonly signal: NodeJS.Signals;

  constructor(signal: NodeJS.Signals) {
    super('cancelled', `interrupted by ${signal}`);
    this.signal = signal;
  }

  get number(): number {
    return constants.signals[this.signal];
  }

  /** What a shell reports for a command that a signal ended. */
  get exitCode(): number {
    return 128 + this.number;
  }

  /** Undefined if the signal has not fired. */
  static of({ reason }: AbortSignal): Interruption | undefined {
    return reason instanceof Interruption ? reason : undefined;
  }
}

/** Calls `first` for the first signal that asks this process to end, and `again` for each later one. */
export const onInterruption = (
  first: (interruption: Interruption) => void,
  again: (interruption: Interruption) => void,
): void => {
  let told = false;
  for (const signal of signals)
    process.on(signal, () => {
      const interruption = new Interruption(signal);
      if (told) again(interruption);
      else first(interruption);
      told = true;
    });
};
