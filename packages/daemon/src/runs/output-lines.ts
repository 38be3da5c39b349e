import { StringDecoder } from 'node:string_decoder';
import type { JobLog } from '@coppice/runtime';

export interface OutputPiece {
  readonly stream: 'stdout' | 'stderr';
  readonly text: string;
}

/** A line that is longer is dropped whole: no agent has so much to say at once. */
const lineBytes = 8 * 1024 * 1024;
const newline = 10;
/** Where a program changes between its two streams more often than this at once, what it wrote to each is joined. */
const mostChanges = 32;

interface Rest {
  /** What has come of the line that is not complete yet. */
  bytes: Buffer;
  /** It is too long: nothing of it is kept until it ends. */
  dropping: boolean;
}

/** Cuts output into lines, also where they come in parts. What is left of it can be written down. */
export class OutputLines {
  readonly #rests: Record<'stdout' | 'stderr', Rest>;

  constructor(state: unknown) {
    const { stdout = '', stderr = '' } = (state ?? {}) as { stdout?: string; stderr?: string };
    this.#rests = {
      stdout: { bytes: Buffer.from(stdout, 'base64'), dropping: false },
      stderr: { bytes: Buffer.from(stderr, 'base64'), dropping: false },
    };
  }

  get state(): unknown {
    const { stdout, stderr } = this.#rests;
    return { stdout: stdout.bytes.toString('base64'), stderr: stderr.bytes.toString('base64') };
  }

  /** `lines`: each complete line without its end. `chunks`: all that came at once of one stream, but for half a character. */
  take(chunks: JobLog['chunks'], framing: 'lines' | 'chunks'): OutputPiece[] {
    return (chunks.length > mostChanges ? joinStreams(chunks) : chunks).flatMap(({ stream, data }) => {
      const texts =
        framing === 'lines' ? this.#cut(this.#rests[stream], data) : this.#decode(this.#rests[stream], data);
      return texts.map((text) => ({ stream, text }));
    });
  }

  #cut(rest: Rest, data: Buffer): string[] {
    const lines: string[] = [];
    let at = 0;
    for (let end = data.indexOf(newline); end >= 0; end = data.indexOf(newline, at)) {
      if (!rest.dropping) lines.push(Buffer.concat([rest.bytes, data.subarray(at, end)]).toString());
      rest.dropping = false;
      rest.bytes = Buffer.alloc(0);
      at = end + 1;
    }
    if (!rest.dropping) rest.bytes = Buffer.concat([rest.bytes, data.subarray(at)]);
    if (rest.bytes.length > lineBytes) {
      rest.bytes = Buffer.alloc(0);
      rest.dropping = true;
    }
    return lines.filter((line) => line.trim() !== '');
  }

  #decode(rest: Rest, data: Buffer): string[] {
    const decoder = new StringDecoder('utf8');
    const whole = Buffer.concat([rest.bytes, data]);
    const text = decoder.write(whole);
    const left = whole.length - Buffer.byteLength(text);
    // Bytes that are no text at all became U+FFFD, which is longer: then nothing is left.
    rest.bytes = left > 0 && left < 4 ? whole.subarray(whole.length - left) : Buffer.alloc(0);
    return text === '' ? [] : [text];
  }
}

const joinStreams = (chunks: JobLog['chunks']): JobLog['chunks'] =>
  (['stdout', 'stderr'] as const).flatMap((stream) => {
    const own = chunks.filter((chunk) => chunk.stream === stream);
    return own.length === 0 ? [] : [{ stream, data: Buffer.concat(own.map(({ data }) => data)) }];
  });
