import { CoppiceError } from '@coppice/protocol';
import { PoolProcess } from './pool-process.ts';

export interface PoolServerOptions {
  /** The program coppice-pool. */
  readonly programPath: string;
  /** Held for as long as it runs, so that two never work on one pool; waits for an earlier one that is about to end. */
  readonly lockFile?: string;
  /** How long it waits for the earlier one. */
  readonly lockWaitMs?: number;
}

/** What coppice-pool is asked. Fields are text or bytes without NUL; those of the answer are bytes. */
export interface PoolCalls {
  call(operation: string, ...fields: (string | Buffer)[]): Promise<Buffer[]>;
}

const firstPauseMs = 20;
const longestPauseMs = 2_000;
/** A call that comes while the program is started again waits that long for it. */
const patienceMs = 3_000;

const restartHint =
  'It is started again by itself: try again in a moment. `coppice doctor` says whether it runs.';

/**
 * The link to coppice-pool, which does what Node cannot: ioctls, extended attributes, exchanges of names. Calls run
 * beside each other; who needs an order waits for the first before making the second.
 *
 * A program that dies fails the calls under way, of which nobody knows how far they came, and another one is started. One
 * that never answered is not: what keeps it from starting is for the caller to hear.
 */
export class PoolServer implements PoolCalls {
  readonly #options: PoolServerOptions;
  #process: PoolProcess;
  /** Why it does not answer now; undefined while it does. */
  #trouble: { readonly error: CoppiceError; readonly over: PromiseWithResolvers<void> } | undefined;
  #answered = false;
  #closed = false;
  #pauseMs = firstPauseMs;
  #restart: NodeJS.Timeout | undefined;

  constructor(options: PoolServerOptions) {
    this.#options = options;
    this.#process = this.#start();
  }

  /** Why calls fail now, for those who ask how it is. */
  get trouble(): string | undefined {
    return this.#trouble?.error.message;
  }

  call(operation: string, ...fields: (string | Buffer)[]): Promise<Buffer[]> {
    return this.#call(operation, fields, undefined);
  }

  /** The same calls for who may give up: what is under way then ends soon, and fails with the signal's reason. */
  until(signal: AbortSignal | undefined): PoolCalls {
    return { call: (operation, ...fields) => this.#call(operation, fields, signal) };
  }

  /** Lets calls under way finish, then ends the program. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#restart);
    await this.#process.close();
  }

  #start(): PoolProcess {
    const { programPath, lockFile, lockWaitMs = 20_000 } = this.#options;
    const started = new PoolProcess(
      programPath,
      lockFile === undefined ? [] : [lockFile, String(lockWaitMs)],
    );
    void started.ended.then((reason) => this.#lose(reason));
    // The first answer says that it has the lock.
    started.call('probe', ['/']).then(
      () => {
        this.#answered = true;
        this.#trouble?.over.resolve();
        this.#trouble = undefined;
        this.#pauseMs = firstPauseMs;
      },
      () => undefined,
    );
    return started;
  }

  #lose(reason: CoppiceError): void {
    if (this.#closed || !this.#answered) return;
    const over = this.#trouble?.over ?? Promise.withResolvers<void>();
    // Whatever it was: it is tried again, so the caller may do so too.
    const error = new CoppiceError('unavailable', reason.message, { hint: restartHint, cause: reason });
    this.#trouble = { error, over };
    this.#restart = setTimeout(() => {
      this.#process = this.#start();
    }, this.#pauseMs).unref();
    this.#pauseMs = Math.min(2 * this.#pauseMs, longestPauseMs);
  }

  async #untilOver({
    error,
    over,
  }: {
    error: CoppiceError;
    over: PromiseWithResolvers<void>;
  }): Promise<void> {
    const late = Promise.withResolvers<never>();
    const timer = setTimeout(() => late.reject(error), patienceMs);
    try {
      await Promise.race([over.promise, late.promise]);
    } finally {
      clearTimeout(timer);
    }
  }

  async #call(
    operation: string,
    fields: readonly (string | Buffer)[],
    signal: AbortSignal | undefined,
  ): Promise<Buffer[]> {
    for (const field of fields) {
      if (typeof field === 'string' ? field.includes('\0') : field.includes(0))
        throw new CoppiceError('invalid_argument', `${operation}: a path holds a NUL character.`);
    }
    if (this.#trouble !== undefined) await this.#untilOver(this.#trouble);
    return this.#process.call(operation, fields, signal);
  }
}
