import { CoppiceError } from '@coppice/protocol';

/** The wire of coppice-pool; native/pool/main.c describes it. */
export interface ReplyFrame {
  readonly id: number;
  readonly status: 'done' | 'failed' | 'part';
  readonly fields: Buffer[];
}

/** What the program takes: a larger one would end it, and with it the calls of everybody. */
const maxRequestBytes = 1024 * 1024;

const statuses = ['done', 'failed', 'part'] as const;

export const encodeRequest = (id: number, fields: readonly (string | Buffer)[]): Buffer => {
  const parts = fields.map((field) => (typeof field === 'string' ? Buffer.from(field) : field));
  const length = parts.reduce((sum, part) => sum + 4 + part.length, 4);
  if (length > maxRequestBytes)
    throw new CoppiceError('too_large', `A request to coppice-pool has ${length} bytes, more than it takes.`);
  const frame = Buffer.allocUnsafe(4 + length);
  frame.writeUInt32LE(length, 0);
  frame.writeUInt32LE(id, 4);
  let at = 8;
  for (const part of parts) {
    frame.writeUInt32LE(part.length, at);
    part.copy(frame, at + 4);
    at += 4 + part.length;
  }
  return frame;
};

const decodeReply = (frame: Buffer): ReplyFrame => {
  const fields: Buffer[] = [];
  for (let at = 5; at < frame.length; ) {
    const length = frame.readUInt32LE(at);
    fields.push(frame.subarray(at + 4, at + 4 + length));
    at += 4 + length;
  }
  return { id: frame.readUInt32LE(0), status: statuses[frame[4]!] ?? 'failed', fields };
};

/** Cuts a byte stream into frames. */
export class ReplyReader {
  readonly #deliver: (frame: ReplyFrame) => void;
  #chunks: Buffer[] = [];
  #buffered = 0;

  constructor(deliver: (frame: ReplyFrame) => void) {
    this.#deliver = deliver;
  }

  push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#buffered += chunk.length;
    if (this.#buffered < this.#wanted()) return;
    let data = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks, this.#buffered);
    while (data.length >= 4) {
      const end = 4 + data.readUInt32LE(0);
      if (data.length < end) break;
      this.#deliver(decodeReply(data.subarray(4, end)));
      data = data.subarray(end);
    }
    this.#chunks = data.length === 0 ? [] : [data];
    this.#buffered = data.length;
  }

  /** Joining chunks only when a frame is whole keeps long answers linear. */
  #wanted(): number {
    const first = this.#chunks[0]!;
    return first.length >= 4 ? 4 + first.readUInt32LE(0) : 4;
  }
}
