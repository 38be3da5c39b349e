import type { IncomingMessage } from 'node:http';
import { CoppiceError } from '@coppice/protocol';
import type { Dialect, RequestFields } from './dialect.ts';
import { type Found, JsonScanner } from './json-scanner.ts';

/** The bytes of a request. They are let go once an answer has begun, as streams last longer than anybody needs them. */
export class RequestBody {
  readonly length: number;
  #bytes: Buffer | undefined;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
    this.length = bytes.length;
  }

  get bytes(): Buffer {
    if (this.#bytes === undefined) throw new CoppiceError('internal', 'the request was already let go');
    return this.#bytes;
  }

  letGo(): void {
    this.#bytes = undefined;
  }
}

/** Reads a body whole, as it may be sent more than once, and never more than the limit. */
export async function readBody(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const encoding = request.headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity')
    throw new CoppiceError('invalid_argument', `a body with content-encoding ${encoding} is not read here`, {
      hint: 'Send it without compression.',
    });
  const tooLarge = (): CoppiceError =>
    new CoppiceError('too_large', `the request is larger than ${maxBytes} bytes`);
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge();
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw tooLarge();
    chunks.push(chunk);
  }
  return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
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
