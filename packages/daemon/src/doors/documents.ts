import type { IncomingMessage, ServerResponse } from 'node:http';
import { CoppiceError } from '@coppice/protocol';
import type { Principal } from '../services.ts';
import { JsonShape } from '../text/json-shape.ts';
import { DocumentRoom } from './document-room.ts';
import type { Gate } from './gate.ts';

export interface DocumentsOptions {
  readonly gate: Gate;
  /** How long a caller may take to send a document, from its head to its last byte. */
  readonly deadlineMs: number;
}

export interface Reading {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly principal: Principal;
  readonly limitBytes: number;
}

type Done = (error: Error | null, text: string) => void;

/** A document of this size costs no more than the call itself. */
const freeBytes = 65_536;

/** Reads the JSON documents of callers that are known and may do what they ask for. */
export class Documents {
  readonly #gate: Gate;
  readonly #deadlineMs: number;
  readonly #room = new DocumentRoom();

  constructor({ gate, deadlineMs }: DocumentsOptions) {
    this.#gate = gate;
    this.#deadlineMs = deadlineMs;
  }

  /** Stops at the first byte that is too much; what the caller still sends after that is not looked at. */
  read({ request, response, principal, limitBytes }: Reading, done: Done): void {
    const { tokenId } = principal;
    const shape = new JsonShape();
    const chunks: Buffer[] = [];
    let bytes = 0;
    let held = 0;
    const finish = (error: Error | null): void => {
      clearTimeout(timer);
      request.off('data', take);
      request.off('end', end);
      request.off('close', gone);
      request.off('error', gone);
      if (error !== null) {
        request.pause();
        done(error, '');
        return;
      }
      if (bytes > freeBytes) this.#gate.charge(principal, bytes);
      const [first = Buffer.alloc(0)] = chunks;
      done(null, (chunks.length > 1 ? Buffer.concat(chunks, bytes) : first).toString());
    };
    const take = (chunk: Buffer): void => {
      bytes += chunk.length;
      try {
        if (bytes > limitBytes) throw tooLarge(limitBytes);
        held = this.#room.hold(tokenId, held, bytes);
        shape.feed(chunk);
      } catch (error) {
        finish(error as Error);
        return;
      }
      chunks.push(chunk);
    };
    const end = (): void => finish(null);
    const gone = (): void => finish(new CoppiceError('cancelled', 'the client disconnected'));
    const timer = setTimeout(() => finish(tooSlow(this.#deadlineMs)), this.#deadlineMs);
    response.once('close', () => this.#room.release(tokenId, held));
    if (Number(request.headers['content-length']) > limitBytes) {
      finish(tooLarge(limitBytes));
      return;
    }
    request.on('data', take);
    request.on('end', end);
    request.on('close', gone);
    request.on('error', gone);
  }
}

const tooLarge = (limitBytes: number): CoppiceError =>
  new CoppiceError('too_large', `this call takes a document of ${limitBytes} bytes at most`);

const tooSlow = (deadlineMs: number): CoppiceError =>
  new CoppiceError('timeout', `the document did not arrive within ${deadlineMs / 1000} s`, {
    hint: 'Send it at once. A call that uploads a file may take as long as it makes progress.',
  });
