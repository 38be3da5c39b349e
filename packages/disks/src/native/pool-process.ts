import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable, Writable } from 'node:stream';
import { CoppiceError } from '@coppice/protocol';
import { errorOfErrno } from './errno.ts';
import { encodeRequest, type ReplyFrame, ReplyReader } from './frames.ts';

interface Pending {
  readonly operation: string;
  readonly fields: Buffer[];
  readonly resolve: (fields: Buffer[]) => void;
  readonly reject: (error: unknown) => void;
  readonly signal: AbortSignal | undefined;
  readonly cancel: () => void;
}

/** The exit code of a program that did not get the lock. */
const lockedExitCode = 3;

/** One run of coppice-pool. */
export class PoolProcess {
  /** Settles when the program is gone, with the reason. */
  readonly ended: Promise<CoppiceError>;
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #pending = new Map<number, Pending>();
  #nextId = 1;
  #endedWith: CoppiceError | undefined;
  #idle = Promise.withResolvers<void>();

  constructor(programPath: string, args: readonly string[]) {
    this.#child = spawn(programPath, ['serve', ...args], { stdio: ['pipe', 'pipe', 'pipe'] });
    let complaint = '';
    this.#child.stderr.setEncoding('utf8').on('data', (text: string) => {
      complaint = (complaint + text).slice(-2000);
    });
    const reader = new ReplyReader((frame) => this.#settle(frame));
    this.#child.stdout.on('data', (chunk: Buffer) => reader.push(chunk));
    // The exit says what became of it; a broken pipe alone says nothing more.
    this.#child.stdin.on('error', () => undefined);
    this.ended = once(this.#child, 'close').then(
      ([code, signal]) =>
        this.#end(complaint.trim() || `it ended with ${signal ?? `code ${code}`}`, code === lockedExitCode),
      (error: Error) => this.#end(error.message, false),
    );
  }

  /** A call that is given up settles once the program has stopped working on it. */
  call(operation: string, fields: readonly (string | Buffer)[], signal?: AbortSignal): Promise<Buffer[]> {
    return new Promise((resolve, reject) => {
      if (this.#endedWith !== undefined) {
        reject(this.#endedWith);
        return;
      }
      signal?.throwIfAborted();
      const id = this.#nextId++;
      const request = encodeRequest(id, [operation, ...fields]);
      const cancel = () => this.#child.stdin.write(encodeRequest(0, ['cancel', String(id)]));
      signal?.addEventListener('abort', cancel);
      this.#pending.set(id, { operation, fields: [], resolve, reject, signal, cancel });
      this.#child.stdin.write(request);
    });
  }

  /** Lets calls under way finish, then ends the program. */
  async close(): Promise<void> {
    if (this.#pending.size > 0) await this.#idle.promise;
    this.#child.stdin.end();
    await this.ended;
  }

  #settle(frame: ReplyFrame): void {
    const pending = this.#pending.get(frame.id);
    if (pending === undefined) return;
    if (frame.status === 'part') {
      pending.fields.push(...frame.fields);
      return;
    }
    this.#pending.delete(frame.id);
    pending.signal?.removeEventListener('abort', pending.cancel);
    if (frame.status === 'failed') {
      const [errno, message] = frame.fields.map((field) => field.toString());
      const cancelled = errno === 'ECANCELED' && pending.signal?.aborted;
      pending.reject(
        cancelled ? pending.signal.reason : errorOfErrno(errno ?? 'EIO', message ?? pending.operation),
      );
    } else {
      pending.resolve(pending.fields.length === 0 ? frame.fields : [...pending.fields, ...frame.fields]);
    }
    this.#noteIdle();
  }

  #end(reason: string, locked: boolean): CoppiceError {
    const failure = locked
      ? new CoppiceError('in_use', `The pool is in use by another daemon: ${reason}`, {
          hint: 'Stop the other daemon with `coppice down`, or use another COPPICE_HOME.',
        })
      : new CoppiceError('unavailable', `The pool's helper program is not running: ${reason}`, {
          hint: 'Restart the daemon; `make -C native` builds the program if it is missing.',
        });
    this.#endedWith = failure;
    for (const pending of this.#pending.values()) {
      pending.signal?.removeEventListener('abort', pending.cancel);
      pending.reject(failure);
    }
    this.#pending.clear();
    this.#noteIdle();
    return failure;
  }

  #noteIdle(): void {
    if (this.#pending.size > 0) return;
    this.#idle.resolve();
    this.#idle = Promise.withResolvers();
  }
}
