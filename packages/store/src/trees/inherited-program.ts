import { closeSync, readSync, writeSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol/errors';
import {
  decodeTreeAnswer,
  encodeTreeRequest,
  programEndedEarly,
  programIsClosed,
  type TreeProgram,
  type TreeWords,
} from './tree-program.ts';

const newline = 10;

/**
 * One that was started before this process, by `coppice-tree for COMMAND`, and listens on two pipes. A command that has
 * nothing else to do waits for each answer: the part of Node that starts and watches processes takes longer to load than a
 * small restore takes.
 */
export class InheritedProgram implements TreeProgram, Disposable {
  readonly pid: number;
  readonly #from: number;
  readonly #to: number;
  #ended: Error | undefined;
  #isOpen = true;

  /** `pipes` is what `coppice-tree for` says: the pipe to read from, the one to write to, the program's process. */
  constructor(pipes: string) {
    const [, from, to, pid] = /^(\d+) (\d+) (\d+)$/.exec(pipes) ?? [];
    if (pid === undefined) throw new CoppiceError('internal', `these are no pipes of coppice-tree: ${pipes}`);
    this.#from = Number(from);
    this.#to = Number(to);
    this.pid = Number(pid);
  }

  get hasEnded(): boolean {
    return this.#ended !== undefined;
  }

  #send(bytes: Buffer): void {
    for (let at = 0; at < bytes.length; ) at += writeSync(this.#to, bytes, at);
  }

  #receive(): string {
    const parts: Buffer[] = [];
    for (;;) {
      const part = Buffer.allocUnsafe(64 * 1024);
      const length = readSync(this.#from, part);
      if (length === 0) throw programEndedEarly('its pipe is closed');
      parts.push(part.subarray(0, length));
      if (part[length - 1] === newline) return Buffer.concat(parts).toString('utf8');
    }
  }

  async request<Answer>(operation: string, words: TreeWords = {}): Promise<Answer> {
    if (this.#ended) throw this.#ended;
    const bytes = encodeTreeRequest(operation, words);
    try {
      this.#send(bytes);
      const decoded = decodeTreeAnswer(this.#receive());
      if ('answer' in decoded) return decoded.answer as Answer;
      throw decoded.failure;
    } catch (error) {
      this.#ended = error as Error;
      throw error;
    }
  }

  close(): void {
    this.#ended ??= programIsClosed();
    if (!this.#isOpen) return;
    this.#isOpen = false;
    closeSync(this.#to);
    // Its end of the other pipe is the last that it lets go of.
    while (readSync(this.#from, Buffer.allocUnsafe(64)) > 0);
    closeSync(this.#from);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
