import type { ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CoppiceError, isErrorCode } from '@coppice/protocol/errors';

type Words = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>;

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

/** A running coppice-tree: it does what touches files, and holds the locks for as long as it lives. */
export class TreeProgram {
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
    this.#child.on('close', (code, signal) =>
      this.#end(new CoppiceError('internal', `coppice-tree ended unexpectedly (${signal ?? code})`)),
    );
  }

  #take(text: string): void {
    this.#text += text;
    for (let end = this.#text.indexOf('\n'); end >= 0; end = this.#text.indexOf('\n')) {
      const line = this.#text.slice(0, end);
      this.#text = this.#text.slice(end + 1);
      const waiting = this.#waiting.shift();
      const answer = JSON.parse(line) as { error?: { code: string; message: string; touched: boolean } };
      if (!answer.error) waiting?.resolve(answer);
      else {
        const { code, message, touched } = answer.error;
        const failure = new CoppiceError(isErrorCode(code) ? code : 'internal', message, {
          details: { touched },
        });
        // It ends with its first error; whoever asks again meanwhile shall hear the cause and not of a broken pipe.
        this.#ended ??= failure;
        waiting?.reject(failure);
      }
    }
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Then its locks are gone too. */
  get hasEnded(): boolean {
    return this.#ended !== undefined;
  }

  #end(error: Error): void {
    this.#ended ??= error;
    for (const waiting of this.#waiting.splice(0)) waiting.reject(error);
  }

  request<Answer>(operation: string, words: Words = {}): Promise<Answer> {
    if (this.#ended) return Promise.reject(this.#ended);
    const parts = [operation];
    for (const [key, value] of Object.entries(words)) {
      if (value === undefined) continue;
      for (const item of Array.isArray(value) ? value : [value]) {
        parts.push(`${key}=${item === true ? 1 : item === false ? 0 : item}`);
      }
    }
    if (parts.some((part) => part.includes('\0'))) {
      return Promise.reject(new CoppiceError('invalid_argument', 'a path holds a NUL character'));
    }
    const body = Buffer.from(`${parts.join('\0')}\0`);
    const head = Buffer.alloc(4);
    head.writeUInt32LE(body.length);
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve: resolve as (answer: unknown) => void, reject });
      this.#child.stdin?.write(Buffer.concat([head, body]));
    });
  }

  /** Gives up all locks. The command ends when the program has: whoever comes next finds no file open and no lock held. */
  close(): void {
    this.#ended ??= new CoppiceError('internal', 'coppice-tree is closed');
    this.#child.stdin?.end();
    this.#child.stdout?.destroy();
  }
}
