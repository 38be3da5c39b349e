import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CoppiceError, isErrorCode } from '@coppice/protocol/errors';
import { pathBytes } from './path-text.ts';

export type TreeWords = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>;

/** Beside the sources or beside the bundle: somewhere above this file. */
const findProgram = (): string => {
  const given = process.env.COPPICE_TREE_PROGRAM;
  if (given) return given;
  for (let folder = import.meta.dirname; folder !== dirname(folder); folder = dirname(folder)) {
    const candidate = join(folder, 'native/build/coppice-tree');
    if (existsSync(candidate)) return candidate;
  }
  throw new CoppiceError('unsupported', 'the program coppice-tree has not been built', {
    hint: 'Run `make -C native` in the checkout; it needs a C compiler.',
  });
};

/** A length, and that many bytes of words that end with NUL (native/tree/requests.h). */
const encodeRequest = (operation: string, words: TreeWords): Buffer => {
  const parts = [operation];
  for (const [key, value] of Object.entries(words)) {
    if (value === undefined) continue;
    for (const item of Array.isArray(value) ? value : [value]) {
      parts.push(`${key}=${item === true ? 1 : item === false ? 0 : item}`);
    }
  }
  if (parts.some((part) => part.includes('\0'))) {
    throw new CoppiceError('invalid_argument', 'a path or a text holds a NUL character');
  }
  const body = pathBytes(`${parts.join('\0')}\0`);
  const head = Buffer.alloc(4);
  head.writeUInt32LE(body.length);
  return Buffer.concat([head, body]);
};

interface Failure {
  readonly code: string;
  readonly message: string;
  /** The worktree was changed before it failed. */
  readonly touched: boolean;
}

/** What coppice-tree says when it fails, as the error that everybody else throws. */
export const treeFailure = ({ code, message, touched }: Failure): CoppiceError => {
  const known = isErrorCode(code) ? code : 'internal';
  if (!touched) return new CoppiceError(known, message, { details: { touched } });
  return new CoppiceError(known, `${message}; part of the worktree is restored already`, {
    hint: 'Fix that, and the next command finishes the restore. Or restore another snapshot; files that are there now are kept.',
    details: { touched },
  });
};

export interface TreeProgramOptions {
  /** Told what people should know, while the program is at work. */
  readonly notice?: (message: string) => void;
  /** Count on the terminal what is read. */
  readonly progress?: boolean;
  /** What root makes belongs to the owner of this directory. */
  readonly ownerOf?: string;
}

/** A running coppice-tree. It holds its locks for as long as it lives, and ends with its first failure. */
export class TreeProgram {
  readonly #child: ChildProcess;
  readonly #notice: (message: string) => void;
  readonly #waiting: { resolve: (answer: unknown) => void; reject: (error: Error) => void }[] = [];
  #text: string[] = [];
  #ended: Error | undefined;

  constructor({ notice = () => undefined, progress = false, ownerOf }: TreeProgramOptions = {}) {
    this.#notice = notice;
    const words = progress ? ['--progress'] : [];
    if (ownerOf !== undefined) words.push(`--owner-of=${ownerOf}`);
    this.#child = spawn(findProgram(), words, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#child.stdout?.setEncoding('utf8').on('data', (text: string) => this.#take(text));
    this.#child.stdin?.on('error', (error) => this.#end(error));
    this.#child.on('error', (error) => this.#end(error));
    this.#child.on('close', (code, signal) =>
      this.#end(
        new CoppiceError('internal', `coppice-tree ended unexpectedly (${signal ?? code ?? 'unknown'})`),
      ),
    );
  }

  #take(text: string): void {
    const parts = text.split('\n');
    for (const part of parts.slice(0, -1)) {
      this.#takeLine(this.#text.join('') + part);
      this.#text = [];
    }
    this.#text.push(parts.at(-1) ?? '');
  }

  #takeLine(line: string): void {
    let answer: { notice?: string; error?: Failure };
    try {
      answer = JSON.parse(line);
    } catch (cause) {
      this.#end(new CoppiceError('internal', 'coppice-tree gave an answer that is not JSON', { cause }));
      return;
    }
    if (answer.notice !== undefined) {
      this.#notice(answer.notice);
      return;
    }
    const waiting = this.#waiting.shift();
    if (!answer.error) {
      waiting?.resolve(answer);
      return;
    }
    // Whoever asks again shall hear the cause and not of a broken pipe.
    const failure = treeFailure(answer.error);
    this.#ended ??= failure;
    waiting?.reject(failure);
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

  async request<Answer>(operation: string, words: TreeWords = {}): Promise<Answer> {
    if (this.#ended) throw this.#ended;
    const bytes = encodeRequest(operation, words);
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve: resolve as (answer: unknown) => void, reject });
      this.#child.stdin?.write(bytes);
    });
  }

  /** Gives up all locks. A command does not end before the program has: who comes next finds nothing held. */
  close(): void {
    this.#ended ??= new CoppiceError('internal', 'coppice-tree is closed');
    this.#child.stdin?.end();
  }
}
