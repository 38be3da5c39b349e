import { frameHeaderBytes, frameMaxPayload, frameType, protocolError } from './wire.ts';

export interface FrameHandler {
  /** A whole frame that is not data. The payload is the handler's to keep. */
  onFrame(type: number, flags: number, channel: number, payload: Buffer): void;
  /** A piece of a data frame, as it arrived: not held back until the frame is complete, and only there during the call. */
  onData(stream: number, channel: number, piece: Buffer): void;
}

/** What may come before the greeting on a byte stream that an earlier session used as well. */
const seekLimitBytes = 64 << 20;

/** Cuts a byte stream into frames. Holds at most one frame, and none of the memory that it is given. */
export class FrameDecoder {
  readonly #handler: FrameHandler;
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  /** With fewer there is nothing to look at yet, so they are not put together. */
  #neededBytes = frameHeaderBytes;
  /** The data frame that is passing through. */
  #dataLeft = 0;
  #dataStream = 0;
  #dataChannel = 0;
  #sought: Buffer | undefined;
  #skippedBytes = 0;

  constructor(handler: FrameHandler, sought?: Buffer) {
    this.#handler = handler;
    this.#sought = sought;
  }

  push(chunk: Buffer): void {
    let rest = chunk;
    if (this.#sought !== undefined) {
      const found = this.#seek(rest, this.#sought);
      if (found === undefined) return;
      rest = found;
    }
    while (rest.length > 0) rest = this.#dataLeft > 0 ? this.#passData(rest) : this.#takeFrame(rest);
  }

  #seek(chunk: Buffer, sought: Buffer): Buffer | undefined {
    this.#skippedBytes += chunk.length;
    if (this.#skippedBytes > seekLimitBytes) throw protocolError('it does not answer the greeting');
    const whole = this.#gather(chunk);
    const at = whole.indexOf(sought);
    if (at >= 0) {
      this.#sought = undefined;
      return whole.subarray(at);
    }
    this.#hold(whole.subarray(Math.max(0, whole.length - sought.length + 1)));
    return undefined;
  }

  #passData(chunk: Buffer): Buffer {
    const piece = chunk.length > this.#dataLeft ? chunk.subarray(0, this.#dataLeft) : chunk;
    this.#dataLeft -= piece.length;
    this.#handler.onData(this.#dataStream, this.#dataChannel, piece);
    return chunk.subarray(piece.length);
  }

  #takeFrame(chunk: Buffer): Buffer {
    if (this.#pendingBytes + chunk.length < this.#neededBytes) return this.#hold(chunk);
    const bytes = this.#gather(chunk);
    this.#neededBytes = frameHeaderBytes;
    const length = bytes.readUInt32LE(0);
    const type = bytes[4]!;
    const flags = bytes[5]!;
    const channel = bytes.readUInt32LE(8);
    if (
      length > frameMaxPayload ||
      type < frameType.hello ||
      type > frameType.error ||
      bytes.readUInt16LE(6) !== 0
    ) {
      throw protocolError('a frame is malformed');
    }
    if (type === frameType.data) {
      if (flags > 1) throw protocolError('data names an unknown stream');
      if (length === 0) throw protocolError('a piece of data is empty');
      this.#dataLeft = length;
      this.#dataStream = flags;
      this.#dataChannel = channel;
      return bytes.subarray(frameHeaderBytes);
    }
    if (flags !== 0) throw protocolError('a frame has unknown flags');
    if (bytes.length < frameHeaderBytes + length) {
      this.#neededBytes = frameHeaderBytes + length;
      return this.#hold(bytes);
    }
    const payload = Buffer.from(bytes.subarray(frameHeaderBytes, frameHeaderBytes + length));
    this.#handler.onFrame(type, flags, channel, payload);
    return bytes.subarray(frameHeaderBytes + length);
  }

  #gather(chunk: Buffer): Buffer {
    if (this.#pendingBytes === 0) return chunk;
    this.#pending.push(chunk);
    const whole = Buffer.concat(this.#pending, this.#pendingBytes + chunk.length);
    this.#pending = [];
    this.#pendingBytes = 0;
    return whole;
  }

  #hold(bytes: Buffer): Buffer {
    if (bytes.length > 0) {
      this.#pending.push(Buffer.from(bytes));
      this.#pendingBytes += bytes.length;
    }
    return Buffer.alloc(0);
  }
}
