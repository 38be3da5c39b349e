import type { IncomingMessage } from 'node:http';
import { CoppiceError } from '@coppice/protocol';
import type { Dialect, RequestFields } from './dialect.ts';
import { type Found, JsonScanner } from './json-scanner.ts';

/** The bytes of a request. They are let go once an answer has begun, as streams last longer than anybody needs them. */
export class RequestBody {
  #bytes: Buffer | undefined;
  #length = 0;
  readonly #take: (bytes: number) => void;
  readonly #give: (bytes: number) => void;

  /** `take` is asked for room before anything is kept, and throws where there is none; `give` gets it back. */
  constructor(take: (bytes: number) => void, give: (bytes: number) => void) {
    this.#take = take;
    this.#give = give;
  }

  get length(): number {
    return this.#length;
  }

  get bytes(): Buffer {
    if (this.#bytes === undefined) throw new CoppiceError('internal', 'the request was already let go');
    return this.#bytes;
  }

  /** Reads it whole, as it may be sent more than once, and never more than the limit. */
  async read(request: IncomingMessage, maxBytes: number): Promise<void> {
    const tooLarge = (): CoppiceError =>
      new CoppiceError('too_large', `the request is larger than ${maxBytes} bytes`);
    const encoding = request.headers['content-encoding'];
    if (encoding !== undefined && encoding !== 'identity')
      throw new CoppiceError(
        'invalid_argument',
        `a body with content-encoding ${encoding} is not read here`,
        {
          hint: 'Send it without compression.',
        },
      );
    if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge();
    const chunks: Buffer[] = [];
    this.#bytes = Buffer.alloc(0);
    for await (const chunk of request as AsyncIterable<Buffer>) {
      if (this.#length + chunk.length > maxBytes) throw tooLarge();
      this.#take(chunk.length);
      this.#length += chunk.length;
      chunks.push(chunk);
    }
    this.#bytes = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
  }

  letGo(): void {
    if (this.#bytes === undefined) return;
    this.#bytes = undefined;
    this.#give(this.#length);
  }
}

/**
 * Finds what the gateway decides by. What an upstream could read otherwise is refused: a field that is there twice, or
 * that differs only by case, or text that is not JSON.
 */
export function findFields(dialect: Dialect, body: Buffer): RequestFields {
  const fields = new Map<string, Found>();
  let twice: string | undefined;
  const scanner = new JsonScanner(
    dialect.requestFields,
    (found) => {
      if (fields.has(found.name)) twice = found.name;
      fields.set(found.name, found);
    },
    { isStrict: true, maxValueBytes: 4096 },
  );
  scanner.feed(body);
  scanner.end();
  if (scanner.fault !== undefined)
    throw new CoppiceError('invalid_argument', `the request cannot be read: ${scanner.fault}`);
  if (!scanner.isWhole)
    throw new CoppiceError('invalid_argument', 'the request is not one whole JSON document');
  if (twice !== undefined) throw new CoppiceError('invalid_argument', `the request has ${twice} twice`);
  return fields;
}
