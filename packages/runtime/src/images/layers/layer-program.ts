import { type ChildProcess, spawn } from 'node:child_process';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { CoppiceError, isErrorCode } from '@coppice/protocol';

/** What is known of a layer that was unpacked. Paths are from its root, which is empty. */
export interface UnpackedLayer {
  readonly entries: number;
  readonly files: number;
  readonly bytes: number;
  readonly devicesDropped: number;
  readonly attributesDropped: number;
  /** Directories that no entry names: they look as the layer below has them. */
  readonly unnamed: readonly string[];
  /** Directories in which something of the layers below is hidden. */
  readonly whiteouts: readonly string[];
  /** Directories that hide the whole of the one below. */
  readonly opaque: readonly string[];
}

export interface UnpackLimits {
  readonly maxBytes: number;
  readonly maxEntries: number;
}

const keptStderrBytes = 8192;

/** The program coppice-layer: layers of tar to directories for an overlay, and back. */
export class LayerProgram {
  readonly #program: string;

  constructor(program: string) {
    this.#program = program;
  }

  /** Into an empty directory; after a failure it holds a part. */
  async unpack(
    tar: AsyncIterable<Buffer>,
    directory: string,
    { maxBytes, maxEntries }: UnpackLimits,
    signal?: AbortSignal,
  ): Promise<UnpackedLayer> {
    const child = spawn(this.#program, ['unpack', String(maxBytes), String(maxEntries), directory], {
      stdio: 'pipe',
    });
    const said: Buffer[] = [];
    child.stdout.on('data', (chunk: Buffer) => said.push(chunk));
    const [fed, end] = await Promise.allSettled([
      pipeline(Readable.from(tar, { objectMode: false, highWaterMark: 1 << 20 }), child.stdin, {
        signal,
      }).catch((error: unknown) => {
        // A failure of the source: the program must not wait for more.
        if (!readsNoFurther(error)) child.kill('SIGKILL');
        throw error;
      }),
      endOf(child),
    ]);
    if (fed.status === 'rejected' && !readsNoFurther(fed.reason)) throw fed.reason;
    if (end.status === 'rejected') throw end.reason;
    if (fed.status === 'rejected') throw fed.reason;
    return parseAnswer(Buffer.concat(said));
  }

  /** A directory of an overlay as a layer. The same directory always gives the same bytes. */
  async *pack(directory: string, maxBytes: number): AsyncGenerator<Buffer, void, undefined> {
    const child = spawn(this.#program, ['pack', String(maxBytes), directory], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
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
}

/** It has ended, and says itself why. */
const readsNoFurther = (error: unknown): boolean =>
  ['EPIPE', 'ECONNRESET', 'ERR_STREAM_PREMATURE_CLOSE'].includes((error as NodeJS.ErrnoException).code ?? '');

function endOf(child: ChildProcess): Promise<void> {
  let complaint = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    complaint = (complaint + text).slice(0, keptStderrBytes);
  });
  return new Promise((resolve, reject) => {
    child.on('error', (error) =>
      reject(
        new CoppiceError('unavailable', `coppice-layer does not start: ${error.message}`, { cause: error }),
      ),
    );
    child.on('close', (code, signal) =>
      code === 0 ? resolve() : reject(failureOf(complaint, code ?? signal)),
    );
  });
}

/** Its first word is a code of ours. */
function failureOf(complaint: string, ended: number | string | null): CoppiceError {
  const text = complaint.trim();
  const space = text.indexOf(' ');
  const code = text.slice(0, Math.max(space, 0));
  if (!isErrorCode(code)) return new CoppiceError('internal', `coppice-layer ended with ${ended}: ${text}`);
  return new CoppiceError(code, text.slice(space + 1), { hint: hints[code] ?? 'Nothing of it was kept.' });
}

const hints: Readonly<Record<string, string>> = {
  unsafe: 'Nothing of it was kept. Take images from people you trust, or build it again without that entry.',
  too_large: 'Nothing of it was kept.',
  unsupported: 'Nothing of it was kept. Build the layer again with another tool.',
  no_space: 'Nothing of it was kept. Remove images that nothing uses: coppice images prune',
};

function parseAnswer(answer: Buffer): UnpackedLayer {
  const numbers = new Map<string, number>();
  const paths: Record<string, string[]> = { unnamed: [], whiteouts: [], opaque: [] };
  for (const line of answer.toString('latin1').split('\0').slice(0, -1)) {
    const equals = line.indexOf('=');
    const key = line.slice(0, equals);
    const value = line.slice(equals + 1);
    if (paths[key] === undefined) numbers.set(key, Number(value));
    else paths[key].push(value);
  }
  const number = (key: string): number => {
    const value = numbers.get(key);
    if (value === undefined) throw new CoppiceError('internal', 'coppice-layer did not say what it unpacked');
    return value;
  };
  return {
    entries: number('entries'),
    files: number('files'),
    bytes: number('bytes'),
    devicesDropped: number('devices_dropped'),
    attributesDropped: number('attributes_dropped'),
    unnamed: paths.unnamed!,
    whiteouts: paths.whiteouts!,
    opaque: paths.opaque!,
  };
}
