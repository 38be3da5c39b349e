import type { WholeAnswer } from '../connection/transport.ts';

/** What the daemon, or a proxy before it, answered to one call. */
export interface KeptAnswer extends WholeAnswer {
  /** How long the connection may lie idle before the other end gives it up; 0: it is of no further use. */
  readonly idleMs: number;
}

const headEnd = Buffer.from('\r\n\r\n');
const lineEnd = Buffer.from('\r\n');
const headMaxBytes = 64 * 1024;
const idleUnlessToldMs = 5000;
const switchingProtocols = 101;

const malformed = (what: string): Error => new Error(`what came is no HTTP: ${what}`);

/** Undefined: it is not said. One that cannot be understood, or another one beside it, would have us wait for what never comes. */
const readLength = (head: string): string | undefined => {
  const said = head.match(/\r\ncontent-length[ \t]*:[^\r]*/gi);
  if (said === null) return undefined;
  const [, length] = /^\r\ncontent-length:[ \t]*(\d{1,15})[ \t]*$/i.exec(said[0]) ?? [];
  if (length === undefined || said.length > 1) throw malformed('its length cannot be told');
  return length;
};

/** Cuts the parts of a chunked body out of what comes. */
class ChunkedBody {
  readonly parts: Buffer[] = [];
  #rest: Buffer = Buffer.alloc(0);
  #missing = 0;
  #last = false;

  /** Whether the body is whole; nothing follows it, as nothing more was asked for. */
  push(bytes: Buffer): boolean {
    this.#rest = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    for (;;) {
      if (this.#missing > 0 && !this.#takePart()) return false;
      const end = this.#rest.indexOf(lineEnd);
      if (end < 0) {
        if (this.#rest.length > headMaxBytes) throw malformed('a line of a chunked body has no end');
        return false;
      }
      const line = this.#rest.toString('latin1', 0, end);
      this.#rest = this.#rest.subarray(end + lineEnd.length);
      // After the last part come trailers, which mean nothing here, and an empty line.
      if (this.#last && line === '') return true;
      if (!this.#last) this.#begin(line);
    }
  }

  #begin(line: string): void {
    const [, size] = /^([0-9a-fA-F]{1,12})[ \t]*(?:;.*)?$/.exec(line) ?? [];
    if (size === undefined) throw malformed('a chunk has no size');
    const length = Number.parseInt(size, 16);
    if (length === 0) this.#last = true;
    else this.#missing = length + lineEnd.length;
  }

  #takePart(): boolean {
    const part = this.#rest.subarray(0, this.#missing);
    this.#rest = this.#rest.subarray(part.length);
    const data = Math.min(part.length, Math.max(0, this.#missing - lineEnd.length));
    if (data > 0) this.parts.push(part.subarray(0, data));
    this.#missing -= part.length;
    return this.#missing === 0;
  }
}

/** Reads one answer of HTTP/1.1 as a whole. It is made for what follows one request on a connection, and nothing else. */
export class AnswerParser {
  #head: Buffer = Buffer.alloc(0);
  #status = 0;
  #idleMs = 0;
  #body: Buffer[] = [];
  /** Of the body, still to come; undefined: until the connection ends. */
  #missing: number | undefined = 0;
  #chunked: ChunkedBody | undefined;

  /** The answer as soon as it is whole. */
  push(bytes: Buffer): KeptAnswer | undefined {
    return this.#status === 0 ? this.#pushHead(bytes) : this.#pushBody(bytes);
  }

  /** The connection has ended: that is the end of an answer which did not say how long it is. */
  end(): KeptAnswer | undefined {
    const untilEnd = this.#status !== 0 && this.#chunked === undefined && this.#missing === undefined;
    return untilEnd ? this.#whole() : undefined;
  }

  #pushHead(bytes: Buffer): KeptAnswer | undefined {
    this.#head = this.#head.length === 0 ? bytes : Buffer.concat([this.#head, bytes]);
    const end = this.#head.indexOf(headEnd);
    if (end < 0) {
      if (this.#head.length > headMaxBytes) throw malformed('its head has no end');
      return undefined;
    }
    this.#readHead(this.#head.toString('latin1', 0, end));
    const rest = this.#head.subarray(end + headEnd.length);
    if (this.#status >= 200) return this.#pushBody(rest);
    if (this.#status === switchingProtocols) throw malformed('it speaks another protocol from now on');
    // It only says that the answer is under way.
    this.#status = 0;
    this.#head = Buffer.alloc(0);
    return rest.length === 0 ? undefined : this.#pushHead(rest);
  }

  #readHead(head: string): void {
    const [, minor, status] = /^HTTP\/1\.([01]) ([1-5]\d\d)(?: |\r|$)/.exec(head) ?? [];
    if (status === undefined) throw malformed('it does not begin with a status');
    this.#status = Number(status);
    const length = readLength(head);
    const isChunked = /\r\ntransfer-encoding:[^\r]*\bchunked[ \t]*(?:\r|$)/i.test(head);
    const closes = minor === '0' || /\r\nconnection:[^\r]*\bclose\b/i.test(head);
    const seconds = /\r\nkeep-alive:[^\r]*\btimeout=(\d{1,6})/i.exec(head)?.[1];
    const hasNoBody = this.#status === 204 || this.#status === 304;
    this.#missing = hasNoBody ? 0 : length === undefined ? undefined : Number(length);
    if (isChunked && !hasNoBody) this.#chunked = new ChunkedBody();
    const untilEnd = this.#chunked === undefined && this.#missing === undefined;
    // A second less than it says: what is sent just before the end is not answered.
    const idleMs = seconds === undefined ? idleUnlessToldMs : (Number(seconds) - 1) * 1000;
    this.#idleMs = closes || untilEnd ? 0 : Math.max(0, idleMs);
  }

  #pushBody(bytes: Buffer): KeptAnswer | undefined {
    if (this.#chunked !== undefined) {
      if (!this.#chunked.push(bytes)) return undefined;
      this.#body = this.#chunked.parts;
      return this.#whole();
    }
    if (bytes.length > 0) this.#body.push(bytes);
    if (this.#missing === undefined) return undefined;
    this.#missing -= bytes.length;
    if (this.#missing < 0) throw malformed('more came than was announced');
    return this.#missing === 0 ? this.#whole() : undefined;
  }

  #whole(): KeptAnswer {
    const [first] = this.#body;
    const bytes = this.#body.length === 1 && first !== undefined ? first : Buffer.concat(this.#body);
    return { status: this.#status, text: bytes.toString(), idleMs: this.#idleMs };
  }
}
