/** The messages that coppice-launch speaks: a 32-bit length, then NUL-terminated `key=value` strings. */
export type LaunchFields = readonly (readonly [key: string, value: string])[];

const headBytes = 4;

export function encodeLaunchMessage(fields: LaunchFields): Buffer {
  const body = Buffer.from(fields.map(([key, value]) => `${key}=${value}\0`).join(''), 'utf8');
  const head = Buffer.alloc(headBytes);
  head.writeUInt32LE(body.length);
  return Buffer.concat([head, body]);
}

/** Cuts a stream of bytes into messages. */
export class LaunchMessageReader {
  #kept = Buffer.alloc(0);

  push(chunk: Buffer): Map<string, string>[] {
    this.#kept = this.#kept.length === 0 ? Buffer.from(chunk) : Buffer.concat([this.#kept, chunk]);
    const messages: Map<string, string>[] = [];
    while (this.#kept.length >= headBytes) {
      const end = headBytes + this.#kept.readUInt32LE(0);
      if (this.#kept.length < end) break;
      messages.push(decode(this.#kept.subarray(headBytes, end)));
      this.#kept = this.#kept.subarray(end);
    }
    return messages;
  }
}

function decode(body: Buffer): Map<string, string> {
  const message = new Map<string, string>();
  for (const entry of body.toString('utf8').split('\0')) {
    const equals = entry.indexOf('=');
    if (equals > 0) message.set(entry.slice(0, equals), entry.slice(equals + 1));
  }
  return message;
}
