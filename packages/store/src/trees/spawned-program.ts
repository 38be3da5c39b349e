import type { ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import {
  decodeTreeAnswer,
  encodeTreeRequest,
  programEndedEarly,
  programIsClosed,
  type TreeProgram,
  type TreeWords,
} from './tree-program.ts';

/** Beside the sources or beside the bundle: somewhere above this file. */
const findProgram = (): string => {
  const given = process.env.COPPICE_TREE_PROGRAM;
  if (given) return given;
  for (let folder = import.meta.dirname; folder !== dirname(folder); folder = dirname(folder)) {
    const candidate = join(folder, 'guest/build/coppice-tree');
    if (existsSync(candidate)) return candidate;
  }
  throw new CoppiceError('unsupported', 'the program coppice-tree has not been built', {
    hint: 'Run `make -C guest` in the checkout; it needs a C compiler.',
  });
};

/** A child of this process, which goes on with other work while the program is at its own. */
export class SpawnedProgram implements TreeProgram {
  readonly #child: ChildProcess;
  readonly #waiting: { resolve: (answer: unknown) => void; reject: (error: Error) => void }[] = [];
  #text = '';
  #ended: Error | undefined;

  constructor() {
    // Loaded when it is used: commands that only read the log start without it.
    const { spawn } = process.getBuiltinModule('node:child_process');
    this.#child = spawn(findProgram(), [], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#child.stdout?.setEncoding('utf8').on('data', (text: string) => this.#take(text));
    this.#child.stdin?.on('error', (error) => this.#end(error));
    this.#child.on('error', (error) => this.#end(error));
    this.#child.on('close', (code, signal) => this.#end(programEndedEarly(signal ?? code ?? 'unknown')));
  }

  #take(text: string): void {
    this.#text += text;
    for (let end = this.#text.indexOf('\n'); end >= 0; end = this.#text.indexOf('\n')) {
      const decoded = decodeTreeAnswer(this.#text.slice(0, end));
      this.#text = this.#text.slice(end + 1);
      const waiting = this.#waiting.shift();
      if ('answer' in decoded) waiting?.resolve(decoded.answer);
      else {
        // It ends with its first error; whoever asks again meanwhile shall hear the cause and not of a broken pipe.
        this.#ended ??= decoded.failure;
        waiting?.reject(decoded.failure);
      }
    }
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  get hasEnded(): boolean {
    return this.#ended !== undefined;
  }

  #end(error: Error): void {
    this.#ended ??= error;
    for (const waiting of this.#waiting.splice(0)) waiting.reject(error);
  }

  async request<Answer>(operation: string, words: TreeWords = {}): Promise<Answer> {
    if (this.#ended) throw this.#ended;
    const bytes = encodeTreeRequest(operation, words);
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve: resolve as (answer: unknown) => void, reject });
      this.#child.stdin?.write(bytes);
    });
  }

  close(): void {
    this.#ended ??= programIsClosed();
    this.#child.stdin?.end();
    this.#child.stdout?.destroy();
  }
}
