/** What the first message of a TLS client says about where it wants to go. */
interface ClientHello {
  readonly serverName: string | undefined;
  /** Encrypted client hello: the name that can be read may not be the one that is meant. */
  readonly hidesItsName: boolean;
}

export type Hello =
  | { readonly state: 'whole'; readonly hello: ClientHello }
  | { readonly state: 'partial' }
  | { readonly state: 'broken' };

/** A hello with every post-quantum key share there is takes less than a quarter of this. */
export const longestHello = 32 * 1024;

const broken: Hello = { state: 'broken' };
const partial: Hello = { state: 'partial' };

const handshakeRecord = 22;
const clientHelloMessage = 1;
const serverNameExtension = 0;
const encryptedHelloExtension = 0xfe0d;

/** Reads bytes that a stranger wrote; every length is checked against what is there. */
class Reader {
  #at = 0;
  readonly #bytes: Buffer;
  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }
  get left(): number {
    return this.#bytes.length - this.#at;
  }
  /** A number of this many bytes, or undefined where the bytes end before. */
  number(size: number): number | undefined {
    if (this.left < size) return undefined;
    const value = this.#bytes.readUIntBE(this.#at, size);
    this.#at += size;
    return value;
  }
  /** What follows, with its length before it. */
  block(sizeOfLength: number): Reader | undefined {
    const length = this.number(sizeOfLength);
    return length === undefined ? undefined : this.take(length);
  }
  take(length: number): Reader | undefined {
    if (this.left < length) return undefined;
    this.#at += length;
    return new Reader(this.#bytes.subarray(this.#at - length, this.#at));
  }
  get text(): string {
    return this.#bytes.subarray(this.#at).toString('latin1');
  }
}

/** Looks at the bytes that a client has sent so far. */
export function readClientHello(bytes: Buffer): Hello {
  const message: Buffer[] = [];
  let have = 0;
  let at = 0;
  // A handshake message may be spread over several records.
  for (;;) {
    if (bytes.length - at < 5) return bytes.length > 0 && bytes[0] !== handshakeRecord ? broken : partial;
    const length = bytes.readUInt16BE(at + 3);
    if (bytes[at] !== handshakeRecord || bytes[at + 1] !== 3 || length === 0) return broken;
    message.push(bytes.subarray(at + 5, Math.min(at + 5 + length, bytes.length)));
    have += message.at(-1)?.length ?? 0;
    if (have >= 4) {
      const whole = Buffer.concat(message);
      if (whole[0] !== clientHelloMessage) return broken;
      const size = whole.readUIntBE(1, 3);
      if (size > longestHello) return broken;
      if (have >= 4 + size) return parse(new Reader(whole.subarray(4, 4 + size)));
    }
    at += 5 + length;
    if (at >= bytes.length) return bytes.length > longestHello ? broken : partial;
  }
}

function parse(hello: Reader): Hello {
  const isCut =
    hello.take(2 + 32) === undefined ||
    hello.block(1) === undefined ||
    hello.block(2) === undefined ||
    hello.block(1) === undefined;
  if (isCut) return broken;
  if (hello.left === 0) return { state: 'whole', hello: { serverName: undefined, hidesItsName: false } };
  const extensions = hello.block(2);
  if (extensions === undefined || hello.left > 0) return broken;
  const names: string[] = [];
  let hidesItsName = false;
  while (extensions.left > 0) {
    const type = extensions.number(2);
    const body = extensions.block(2);
    if (type === undefined || body === undefined) return broken;
    if (type === encryptedHelloExtension) hidesItsName = true;
    if (type !== serverNameExtension) continue;
    const list = body.block(2);
    if (list === undefined || body.left > 0) return broken;
    while (list.left > 0) {
      const kind = list.number(1);
      const name = list.block(2);
      if (kind !== 0 || name === undefined) return broken;
      names.push(name.text);
    }
  }
  // Two names in one hello would let servers and us read different ones.
  if (names.length > 1) return broken;
  return { state: 'whole', hello: { serverName: names[0], hidesItsName } };
}
