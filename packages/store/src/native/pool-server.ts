import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable, Writable } from 'node:stream';
import { CoppiceError } from '@coppice/protocol';
import { errorOfErrno } from './errno.ts';
import { encodeRequest, type ReplyFrame, ReplyReader } from './frames.ts';

interface Pending {
  readonly operation: string;
  readonly fields: Buffer[];
  resolve: (fields: Buffer[]) => void;
  reject: (error: Error) => void;
}

export interface PoolServerOptions {
  /** The program coppice-pool. */
  readonly programPath: string;
  /** Held for as long as it runs, so that two never work on one pool; waits for an earlier one that is about to end. */
  readonly lockFile?: string;
  /** How long it waits for the earlier one. */
  readonly lockWaitMs?: number;
}

/**
 * The link to coppice-pool, which does what Node cannot: ioctls, extended attributes, exchanges of names. Calls run
 * beside each other; who needs an order waits for the first before making the second.
 */
export class PoolServer {
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #pending = new Map<number, Pending>();
  readonly #ended: Promise<void>;
  #nextId = 1;
  #endedWith: CoppiceError | undefined;

  constructor(options: PoolServerOptions) {
    const lock =
      options.lockFile === undefined ? [] : [options.lockFile, String(options.lockWaitMs ?? 20_000)];
    const args = ['serve', ...lock];
    this.#child = spawn(options.programPath, args, { stdio: ['pipe', 'pipe', 'pipe'] });
    let complaint = '';
    this.#child.stderr.setEncoding('utf8').on('data', (text: string) => {
      complaint = (complaint + text).slice(-2000);
    });
    const reader = new ReplyReader((frame) => this.#settle(frame));
    this.#child.stdout.on('data', (chunk: Buffer) => reader.push(chunk));
    // The exit says what became of it; a broken pipe alone says nothing more.
    this.#child.stdin.on('error', () => undefined);
    const failed = once(this.#child, 'close').then(
      ([code, signal]) =>
        this.#end(complaint.trim() || `it ended with ${signal ?? `code ${code}`}`, code === 3),
      (error: Error) => this.#end(error.message, false),
    );
    this.#ended = failed;
  }

  /** Fields are text or bytes without NUL. The answer's fields are bytes. */
  call(operation: string, ...fields: (string | Buffer)[]): Promise<Buffer[]> {
    return new Promise((resolve, reject) => {
      if (this.#endedWith !== undefined) {
        reject(this.#endedWith);
        return;
      }
      for (const field of fields) {
        if (typeof field === 'string' ? field.includes('\0') : field.includes(0)) {
          reject(new CoppiceError('invalid_argument', `${operation}: a path holds a NUL character.`));
          return;
        }
      }
      const id = this.#nextId++;
      this.#pending.set(id, { operation, fields: [], resolve, reject });
      this.#child.stdin.write(encodeRequest(id, [operation, ...fields]));
    });
  }

  /** Lets calls under way finish, then ends the program. */
  async close(): Promise<void> {
    await Promise.allSettled(
      [...this.#pending.values()].map(
        (pending) =>
          new Promise<void>((done) => {
            const { resolve, reject } = pending;
            pending.resolve = (fields) => {
              resolve(fields);
              done();
            };
            pending.reject = (error) => {
              reject(error);
              done();
            };
          }),
      ),
    );
    this.#child.stdin.end();
    await this.#ended;
  }

  #settle(frame: ReplyFrame): void {
    const pending = this.#pending.get(frame.id);
    if (pending === undefined) return;
    if (frame.status === 'part') {
      pending.fields.push(...frame.fields);
      return;
    }
    this.#pending.delete(frame.id);
    if (frame.status === 'failed') {
      const [errno, message] = frame.fields.map((field) => field.toString());
      pending.reject(errorOfErrno(errno ?? 'EIO', message ?? pending.operation));
    } else {
      pending.resolve(pending.fields.length === 0 ? frame.fields : [...pending.fields, ...frame.fields]);
    }
  }

  #end(reason: string, locked: boolean): void {
    this.#endedWith = locked
      ? new CoppiceError('in_use', `The pool is in use by another daemon: ${reason}`, {
          hint: 'Stop the other daemon with `coppice down`, or use another COPPICE_HOME.',
        })
      : new CoppiceError('unavailable', `The pool's helper program is not running: ${reason}`, {
          hint: 'Restart the daemon; `make -C guest` builds the program if it is missing.',
        });
    for (const pending of this.#pending.values()) pending.reject(this.#endedWith);
    this.#pending.clear();
  }
}
