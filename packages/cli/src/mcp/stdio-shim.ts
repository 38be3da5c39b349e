import type { IncomingMessage } from 'node:http';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { CoppiceError } from '@coppice/protocol/errors';
import type { DaemonDoor } from './daemon-door.ts';
import { eventData } from './event-data.ts';
import { asMessage, type Message, requestHeaders } from './message.ts';

const internalError = -32603;

/**
 * Carries messages between a client on standard input and output and the daemon. It keeps nothing of its own: a client
 * that goes away stops nothing, and a daemon that is restarted is found again.
 */
export class StdioShim {
  readonly #door: DaemonDoor;
  readonly #output: Writable;
  readonly #calls = new Map<string, AbortController>();
  readonly #pending = new Set<Promise<void>>();
  readonly #signal: AbortSignal;
  #session: string | undefined;
  #protocolVersion: string | undefined;

  constructor(door: DaemonDoor, output: Writable, signal: AbortSignal) {
    this.#door = door;
    this.#output = output;
    this.#signal = signal;
  }

  /** Until the input ends and everything that was asked is answered, or the signal. */
  async serve(input: Readable): Promise<void> {
    const lines = createInterface({ input });
    this.#signal.addEventListener('abort', () => lines.close(), { once: true });
    for await (const line of lines) {
      if (line.trim() === '') continue;
      const work = this.#take(line);
      this.#pending.add(work);
      void work.finally(() => this.#pending.delete(work));
      // Later messages carry what the answer to this one says.
      if (line.includes('"initialize"')) await work;
    }
    await Promise.all(this.#pending);
  }

  async #take(line: string): Promise<void> {
    const message = asMessage(line);
    if (message === undefined) {
      this.#write({
        jsonrpc: '2.0',
        id: null,
        error: { code: -32700, message: 'this line is not a JSON-RPC message' },
      });
      return;
    }
    const key = JSON.stringify(message.id);
    const abort = new AbortController();
    if (message.method !== undefined && message.id !== undefined) this.#calls.set(key, abort);
    try {
      await this.#forward(line, message, AbortSignal.any([abort.signal, this.#signal]));
      if (message.method === 'notifications/cancelled')
        this.#calls.get(JSON.stringify(message.params?.requestId))?.abort();
    } catch (error) {
      if (!abort.signal.aborted && !this.#signal.aborted) this.#fail(message, error);
    } finally {
      if (this.#calls.get(key) === abort) this.#calls.delete(key);
    }
  }

  async #forward(line: string, message: Message, signal: AbortSignal): Promise<void> {
    const headers = requestHeaders(message, this.#session, this.#protocolVersion);
    const response = await this.#door.post(line, headers, signal);
    if (message.method === 'initialize') {
      const session = response.headers['mcp-session-id'];
      if (typeof session === 'string') this.#session = session;
    }
    const type = response.headers['content-type'] ?? '';
    if (type.startsWith('text/event-stream')) {
      for await (const data of eventData(response)) if (data !== '') this.#pass(data, message);
      return;
    }
    const text = await readAll(response);
    if (type.startsWith('application/json') && text !== '') this.#pass(text, message);
    else if ((response.statusCode ?? 0) >= 400) throw refusal(text, response.statusCode);
  }

  #pass(text: string, request: Message): void {
    const message = JSON.parse(text) as { result?: { protocolVersion?: string } };
    if (request.method === 'initialize')
      this.#protocolVersion = message.result?.protocolVersion ?? this.#protocolVersion;
    this.#write(message);
  }

  #fail(message: Message, error: unknown): void {
    if (message.id === undefined || message.method === undefined) return;
    const hint = error instanceof CoppiceError ? ` ${error.hint}` : '';
    const text = `${error instanceof Error ? error.message : String(error)}.${hint}`;
    this.#write({ jsonrpc: '2.0', id: message.id, error: { code: internalError, message: text } });
  }

  #write(message: unknown): void {
    this.#output.write(`${JSON.stringify(message)}\n`);
  }
}

const readAll = async (response: IncomingMessage): Promise<string> => {
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) text += chunk;
  return text;
};

/** Refused at the door: the problem document says why. */
const refusal = (text: string, status: number | undefined): Error => {
  try {
    const { detail, hint } = JSON.parse(text) as { detail?: string; hint?: string };
    if (detail !== undefined) return new Error(`${detail}. ${hint ?? ''}`.trim());
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  return new Error(`the daemon answered with status ${status}`);
};
