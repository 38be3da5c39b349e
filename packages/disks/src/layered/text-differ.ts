import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { CoppiceError } from '@coppice/protocol';

export interface TextPair {
  readonly before: string;
  readonly after: string;
  readonly beforeName: string;
  readonly afterName: string;
  /** How long to look for the shortest description; without one, the whole stretch that differs is one hunk. */
  readonly searchMs: number;
}

/** Beside this file in the sources, beside the bundle of the daemon otherwise. */
const program = new URL(`./text-diff-thread${extname(import.meta.url)}`, import.meta.url);

const standardSearchMs = 3_000;
const deadlineMs = 30_000;
const memoryMb = 512;
const mostThreads = 2;

/**
 * Unified diffs of texts. Two hostile texts keep the search for the shortest diff busy for minutes, so each pair gets a thread of its
 * own and a bound on its time and memory. Where the search gives up, the diff is coarser, and still true.
 */
export class TextDiffer {
  readonly #searchMs: number;
  #running = 0;
  readonly #waiting: (() => void)[] = [];

  constructor({ searchMs = standardSearchMs }: { readonly searchMs?: number } = {}) {
    this.#searchMs = searchMs;
  }

  async diff(pair: Omit<TextPair, 'searchMs'>, signal?: AbortSignal): Promise<string> {
    await this.#enter();
    try {
      signal?.throwIfAborted();
      return await compare({ ...pair, searchMs: this.#searchMs }, signal).catch((error: unknown) => {
        if (!isOutOfMemory(error)) throw error;
        return compare({ ...pair, searchMs: 0 }, signal);
      });
    } finally {
      this.#leave();
    }
  }

  async #enter(): Promise<void> {
    if (this.#running < mostThreads) this.#running += 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  #leave(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#running -= 1;
    else next();
  }
}

const isOutOfMemory = (error: unknown): boolean =>
  (error as NodeJS.ErrnoException).code === 'ERR_WORKER_OUT_OF_MEMORY';

async function compare(pair: TextPair, signal: AbortSignal | undefined): Promise<string> {
  const thread = new Worker(program, {
    workerData: pair,
    resourceLimits: { maxOldGenerationSizeMb: memoryMb },
  });
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const timer = setTimeout(() => reject(tooSlow()), deadlineMs);
  const givenUp = () => reject(signal?.reason);
  signal?.addEventListener('abort', givenUp);
  thread.once('message', resolve);
  thread.once('error', reject);
  thread.once('exit', () => reject(new CoppiceError('internal', 'The comparison of two texts ended early.')));
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', givenUp);
    await thread.terminate();
  }
}

const tooSlow = (): CoppiceError =>
  new CoppiceError('timeout', `The two texts could not be compared within ${deadlineMs / 1000} s.`, {
    hint: 'Copy both files out with `coppice cp` and compare them there.',
  });
