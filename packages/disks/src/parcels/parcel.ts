import { type ChildProcess, spawn } from 'node:child_process';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { CoppiceError, isErrorCode } from '@coppice/protocol';

/** What a tree is for decides what may be in it: native/parcel/parcel.h says what. */
export type ParcelKind = 'disk' | 'image' | 'memory';

export interface ParcelCount {
  readonly entries: number;
  /** Of content and attributes; holes do not count. */
  readonly bytes: number;
}

export interface UnpackOptions {
  readonly kind: ParcelKind;
  /** More content than this is refused. */
  readonly maxBytes: number;
  readonly signal?: AbortSignal | undefined;
}

const keptStderrBytes = 4096;

/** Trees as streams of bytes, and back. The same tree always gives the same bytes. */
export class Parcels {
  readonly #program: string;

  /** `program`: coppice-parcel. */
  constructor(program: string) {
    this.#program = program;
  }

  async *pack(kind: ParcelKind, directory: string): AsyncGenerator<Buffer, void, undefined> {
    const child = spawn(this.#program, ['pack', kind, directory], { stdio: ['ignore', 'pipe', 'pipe'] });
    const ended = endOf(child);
    ended.catch(() => {});
    try {
      for await (const chunk of child.stdout) yield chunk as Buffer;
      await ended;
    } finally {
      // Whoever asked may have gone away in the middle.
      child.kill('SIGKILL');
    }
  }

  /** How many bytes `pack` would give, without reading any file. */
  async measure(kind: ParcelKind, directory: string): Promise<number> {
    const child = spawn(this.#program, ['measure', kind, directory], { stdio: ['ignore', 'pipe', 'pipe'] });
    let answer = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      answer += text;
    });
    await endOf(child);
    return Number(answer);
  }

  /** Reads it to its end and writes nothing: whether it is well formed and holds nothing that it may not. */
  check(stream: AsyncIterable<Uint8Array>, options: UnpackOptions): Promise<ParcelCount> {
    return this.#take(['check', options.kind, String(options.maxBytes)], stream, options.signal);
  }

  /** Into a directory that is empty and that nobody else writes to. After a failure it holds a part. */
  unpack(stream: AsyncIterable<Uint8Array>, directory: string, options: UnpackOptions): Promise<ParcelCount> {
    const args = ['unpack', options.kind, String(options.maxBytes), directory];
    return this.#take(args, stream, options.signal);
  }

  async #take(
    args: readonly string[],
    stream: AsyncIterable<Uint8Array>,
    signal: AbortSignal | undefined,
  ): Promise<ParcelCount> {
    const child = spawn(this.#program, args, { stdio: ['pipe', 'pipe', 'pipe'] });
    let answer = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      answer += text;
    });
    const ended = endOf(child);
    const [fed, end] = await Promise.allSettled([
      pipeline(Readable.from(stream, { objectMode: false }), child.stdin, { signal }).catch((error) => {
        // A failure of the source: it must not wait for more.
        if (!readsNoFurther(error)) child.kill('SIGKILL');
        throw error;
      }),
      ended,
    ]);
    if (fed.status === 'rejected' && !readsNoFurther(fed.reason)) throw fed.reason;
    if (end.status === 'rejected') throw end.reason;
    const [entries, bytes] = answer.trim().split(' ').map(Number);
    if (fed.status === 'rejected' || entries === undefined || bytes === undefined)
      throw new CoppiceError('internal', 'coppice-parcel did not say what it read');
    return { entries, bytes };
  }
}

/** It has ended, and says itself why. */
const readsNoFurther = (error: unknown): boolean =>
  ['EPIPE', 'ECONNRESET', 'ERR_STREAM_PREMATURE_CLOSE'].includes((error as NodeJS.ErrnoException).code ?? '');

const endOf = (child: ChildProcess): Promise<void> => {
  let complaint = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    complaint = (complaint + text).slice(-keptStderrBytes);
  });
  return new Promise((resolve, reject) => {
    child.on('error', (error) =>
      reject(
        new CoppiceError('unavailable', `coppice-parcel does not start: ${error.message}`, { cause: error }),
      ),
    );
    child.on('close', (code, signal) =>
      code === 0 ? resolve() : reject(failureOf(complaint, code ?? signal)),
    );
  });
};

/** Its first word is a code of ours, or `damaged`. */
const failureOf = (complaint: string, ended: number | string | null): CoppiceError => {
  const [first = '', ...words] = complaint.trim().split(' ');
  const text = words.join(' ');
  if (first === 'damaged') return new CoppiceError('invalid_argument', text);
  if (isErrorCode(first)) return new CoppiceError(first, text);
  return new CoppiceError('internal', `coppice-parcel ended with ${ended}: ${complaint.trim()}`);
};
