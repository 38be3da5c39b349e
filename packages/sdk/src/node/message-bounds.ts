/** Larger ones are passed on in parts, as they come. */
const mostHeldBytes = 512 * 1024;
const switched = Buffer.from('HTTP/1.1 101 ');
const headEnd = Buffer.from('\r\n\r\n');

/**
 * Where the messages of a WebSocket end in what was read so far. Given only whole ones, its receiver need not put them together in
 * memory of their own.
 */
export class MessageBounds {
  #inMessages = false;
  /** What is still to come of a message that is passed on in parts. */
  #restBytes = 0;

  /** How much of what has not been passed on is to be passed on now. */
  whole(bytes: Buffer): number {
    if (!this.#inMessages) {
      this.#inMessages =
        bytes.subarray(0, switched.length).equals(switched) &&
        bytes.subarray(-headEnd.length).equals(headEnd);
      return bytes.length;
    }
    let at = Math.min(this.#restBytes, bytes.length);
    this.#restBytes -= at;
    for (;;) {
      const total = this.#frameBytes(bytes, at);
      if (total === undefined) return at;
      if (total > bytes.length - at) {
        if (total <= mostHeldBytes) return at;
        this.#restBytes = total - (bytes.length - at);
        return bytes.length;
      }
      at += total;
    }
  }

  /** The length of the frame that begins there with its header, which servers do not mask; undefined: it has not come yet. */
  #frameBytes(bytes: Buffer, at: number): number | undefined {
    const left = bytes.length - at;
    const short = left < 2 ? undefined : bytes[at + 1]! & 0x7f;
    if (short === undefined || short < 126) return short === undefined ? undefined : 2 + short;
    if (short === 126) return left < 4 ? undefined : 4 + bytes.readUInt16BE(at + 2);
    return left < 10 ? undefined : 10 + bytes.readUInt32BE(at + 2) * 2 ** 32 + bytes.readUInt32BE(at + 6);
  }
}
