import { Worker } from 'node:worker_threads';
import { CoppiceError } from '@coppice/protocol';

/** Given as text: the daemon runs from its sources as well as from one bundle, and this must be found in both. */
const program = `
const { parentPort, workerData: { source, flags } } = require('node:worker_threads');
const pattern = new RegExp(source, flags);
parentPort.on('message', ({ lines, text, by }) => {
  if (lines !== undefined) {
    parentPort.postMessage(lines.flatMap((line, index) => (pattern.test(line) ? [index] : [])));
    return;
  }
  const count = (text.match(pattern) ?? []).length;
  parentPort.postMessage({ count, text: count === 0 ? text : text.replace(pattern, by) });
});`;

const memoryMb = 256;

export interface Replaced {
  readonly text: string;
  readonly count: number;
}

/** Checks it without running it. */
const checkPattern = (source: string): void => {
  try {
    new RegExp(source);
  } catch (cause) {
    throw new CoppiceError(
      'invalid_argument',
      `${source} is not a regular expression: ${(cause as Error).message}`,
      { cause },
    );
  }
};

/**
 * A regular expression of an agent, in a thread of its own: on some texts one takes longer than anybody lives, or makes more
 * of a text than fits into memory, and the daemon serves others meanwhile.
 */
export class PatternThread implements AsyncDisposable {
  readonly #thread: Worker;
  readonly #failed = Promise.withResolvers<never>();
  readonly #timer: NodeJS.Timeout;

  constructor(source: string, flags: 'i' | 'g', timeoutMs = 5000) {
    checkPattern(source);
    this.#thread = new Worker(program, {
      eval: true,
      workerData: { source, flags },
      resourceLimits: { maxOldGenerationSizeMb: memoryMb },
    });
    this.#failed.promise.catch(() => undefined);
    this.#thread.on('error', (cause) =>
      this.#failed.reject(
        new CoppiceError(
          'too_large',
          'the regular expression makes more of the text than there is room for',
          {
            cause,
          },
        ),
      ),
    );
    this.#timer = setTimeout(() => {
      this.#failed.reject(
        new CoppiceError('timeout', `the regular expression took longer than ${timeoutMs} ms`, {
          hint: 'Make it simpler, without one repetition inside of another, or search for plain words.',
        }),
      );
    }, timeoutMs);
  }

  /** The numbers of the lines that it matches. */
  matches(lines: readonly string[]): Promise<number[]> {
    return this.#ask({ lines });
  }

  replace(text: string, by: string): Promise<Replaced> {
    return this.#ask({ text, by });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearTimeout(this.#timer);
    await this.#thread.terminate();
  }

  async #ask<T>(question: object): Promise<T> {
    const answer = new Promise<T>((resolve) => this.#thread.once('message', resolve));
    this.#thread.postMessage(question);
    return Promise.race([answer, this.#failed.promise]);
  }
}
