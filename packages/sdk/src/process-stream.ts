import type { Exit, RouteParams } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import { bytesOfText } from './connection/bytes.ts';
import type { Caller } from './connection/caller.ts';
import { deferred } from './connection/deferred.ts';
import { errorFromStreamEvent } from './connection/problem.ts';
import type { MessageSocket } from './connection/transport.ts';
import type { ProcessOptions } from './options.ts';

export interface OutputChunk {
  readonly stream: 'stdout' | 'stderr';
  readonly data: Uint8Array;
}

export interface StreamedChunk extends OutputChunk {
  /**
   * Says that `data` is not looked at any more, so that its memory takes what comes next. May be left out: the garbage collector
   * then finds it, which takes longer than all the rest where much comes.
   */
  readonly release: () => void;
}

type StreamEvent =
  | { readonly type: 'started'; readonly pid: number }
  | (Exit & { readonly type: 'exit' })
  | { readonly type: 'error' };

const stderrMark = 2;

/**
 * A command that runs now. Iterate it for its output, then await `exit`; a slow reader slows the command down.
 * Leaving the loop early, or `close()`, kills the command and all it started.
 */
export class ProcessStream implements AsyncIterable<StreamedChunk>, AsyncDisposable {
  readonly #socket: MessageSocket;
  readonly #where: string;
  readonly #exit = deferred<Exit>();
  readonly #output: AsyncGenerator<StreamedChunk, void, undefined>;
  #pid: number | undefined;

  private constructor(socket: MessageSocket, where: string) {
    this.#socket = socket;
    this.#where = where;
    this.#output = this.#read();
    // Whoever only reads the output is told of a failure there.
    this.#exit.promise.catch(() => undefined);
  }

  static async start(
    caller: Caller,
    params: RouteParams<'execStream'>,
    command: string | readonly string[],
    options: ProcessOptions,
  ): Promise<ProcessStream> {
    const { signal, ...rest } = options;
    const socket = await caller.transport.socket(caller.path('execStream', params), signal);
    await socket.send(JSON.stringify({ type: 'start', command, ...rest }));
    return new ProcessStream(socket, params.sandbox);
  }

  /** Known once the command has started: after the first chunk of output or the exit. */
  get pid(): number | undefined {
    return this.#pid;
  }

  /** Settles when all output was read. */
  get exit(): Promise<Exit> {
    return this.#exit.promise;
  }

  write(data: Uint8Array | string): Promise<void> {
    return this.#socket.send(typeof data === 'string' ? bytesOfText(data) : data);
  }

  endInput(): Promise<void> {
    return this.#socket.send(JSON.stringify({ type: 'stdin_end' }));
  }

  kill(signal = 15): Promise<void> {
    return this.#socket.send(JSON.stringify({ type: 'signal', signal }));
  }

  close(): void {
    this.#socket.close();
  }

  [Symbol.asyncIterator](): AsyncIterator<StreamedChunk, void, undefined> {
    return this.#output;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  async *#read(): AsyncGenerator<StreamedChunk, void, undefined> {
    try {
      for await (const message of this.#socket) {
        if (typeof message !== 'string') {
          const { data, release } = message;
          yield { stream: data[0] === stderrMark ? 'stderr' : 'stdout', data: data.subarray(1), release };
          continue;
        }
        const event = JSON.parse(message) as StreamEvent;
        if (event.type === 'started') this.#pid = event.pid;
        else if (event.type === 'error') throw errorFromStreamEvent(message);
        else {
          const { type: _, ...exit } = event;
          this.#exit.resolve(exit);
          return;
        }
      }
      throw new CoppiceError('unavailable', `the connection to a command in sandbox ${this.#where} was lost`);
    } catch (error) {
      this.#exit.reject(error);
      throw error;
    } finally {
      this.#exit.reject(
        new CoppiceError('cancelled', `the command in sandbox ${this.#where} was left before it ended`),
      );
      this.#socket.close();
    }
  }
}
