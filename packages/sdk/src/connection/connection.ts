import type http from 'node:http';
import type { IncomingMessage, RequestOptions } from 'node:http';
import type https from 'node:https';
import { pipeline } from 'node:stream/promises';
import type { WholeAnswer } from './answer-parser.ts';
import { DocumentCalls } from './document-calls.ts';
import { type Endpoint, pathPrefix } from './endpoint.ts';
import type { HttpCall } from './http-call.ts';
import { errorFromConnection, errorFromForeignAnswer, errorFromProblem } from './problem.ts';

const maxFreeSockets = 64;

/** Reused connections to one daemon. Found on the first call, and found again after the daemon went away. */
export class Connection {
  readonly #find: () => Endpoint;
  #endpoint: Endpoint | undefined;
  #documents: DocumentCalls | undefined;
  #agent: http.Agent | undefined;

  constructor(find: () => Endpoint) {
    this.#find = find;
  }

  get endpoint(): Endpoint {
    this.#endpoint ??= this.#find();
    return this.#endpoint;
  }

  /** One JSON document. */
  async json(call: HttpCall): Promise<unknown> {
    const text = await this.text(call);
    try {
      return text === '' ? {} : JSON.parse(text);
    } catch (cause) {
      throw errorFromForeignAnswer(text, this.where, asked(call), cause);
    }
  }

  async text(call: HttpCall): Promise<string> {
    if (call.upload !== undefined) {
      const response = await this.open(call);
      return readAll(response).catch((error: Error) => {
        throw this.#failure(error, call);
      });
    }
    const { status, text } = await this.#document(call);
    if (isSuccess(status)) return text;
    throw errorFromProblem(status, text, asked(call));
  }

  /** The bytes of the answer as they come. */
  async *bytes(call: HttpCall): AsyncGenerator<Buffer, void, undefined> {
    const response = await this.open(call);
    try {
      for await (const chunk of response) yield chunk as Buffer;
    } catch (error) {
      throw this.#failure(error as Error, call);
    } finally {
      response.destroy();
    }
  }

  /** The answer as a stream; any status but success is thrown. */
  async open(call: HttpCall): Promise<IncomingMessage> {
    const response = await this.#send(call);
    const status = response.statusCode ?? 0;
    if (isSuccess(status)) return response;
    throw errorFromProblem(status, await readAll(response), asked(call));
  }

  close(): void {
    this.#documents?.close();
    this.#documents = undefined;
    this.#agent?.destroy();
    this.#agent = undefined;
  }

  /** Where it connects to, for messages. */
  get where(): string {
    const { socketPath, url } = this.endpoint;
    return socketPath ?? url.origin;
  }

  async #document(call: HttpCall): Promise<WholeAnswer> {
    this.#documents ??= new DocumentCalls(this.endpoint);
    try {
      return await this.#documents.call(call);
    } catch (error) {
      throw this.#failure(error as Error, call);
    }
  }

  #failure(error: NodeJS.ErrnoException, call: HttpCall): Error {
    const failure = errorFromConnection(error, this.where, asked(call));
    if (error.code === 'ECONNREFUSED' || error.code === 'ENOENT') this.#forget();
    return failure;
  }

  /** The daemon may come back elsewhere. */
  #forget(): void {
    this.#endpoint = undefined;
    this.close();
  }

  #send(call: HttpCall): Promise<IncomingMessage> {
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const { endpoint } = this;
    const module = streamingHttp(endpoint);
    this.#agent ??= new module.Agent({ keepAlive: true, maxFreeSockets, scheduling: 'lifo' });
    const request = module.request(this.#options(endpoint, call, this.#agent));
    let sourceError: Error | undefined;
    request.once('response', resolve);
    request.once('error', (error: NodeJS.ErrnoException) => {
      // A connection that the daemon closed while it lay idle; only calls that may be repeated are.
      const stale = request.reusedSocket && (error.code === 'ECONNRESET' || error.code === 'EPIPE');
      if (sourceError !== undefined) reject(sourceError);
      else if (stale && call.method === 'GET') this.#send(call).then(resolve, reject);
      else reject(this.#failure(error, call));
    });
    if (call.upload === undefined) {
      // Headers and body leave in one write.
      request.end(call.body);
    } else {
      call.upload.once('error', (error) => {
        sourceError = error;
      });
      // A broken pipe also reaches the request's own error event, and an early refusal comes as an answer.
      pipeline(call.upload, request).catch(() => undefined);
    }
    return promise;
  }

  #options(endpoint: Endpoint, call: HttpCall, agent: http.Agent): RequestOptions {
    const { url, socketPath, token } = endpoint;
    const headers: Record<string, string | number> = { ...call.headers };
    if (token !== undefined) headers.authorization = `Bearer ${token}`;
    if (call.body !== undefined) {
      headers['content-type'] = 'application/json';
      headers['content-length'] = Buffer.byteLength(call.body);
    } else if (call.upload !== undefined) {
      headers['content-type'] = 'application/octet-stream';
      if (call.uploadBytes !== undefined) headers['content-length'] = call.uploadBytes;
    }
    return {
      agent,
      method: call.method,
      path: pathPrefix(endpoint) + call.path,
      headers,
      ...(socketPath === undefined
        ? { host: url.hostname, port: url.port }
        : { socketPath, host: 'localhost' }),
      ...(call.signal === undefined ? {} : { signal: call.signal }),
    };
  }
}

const asked = ({ method, path }: HttpCall): string => `${method} ${path}`;

const isSuccess = (status: number): boolean => status >= 200 && status < 300;

/** Loaded when it is used: most programs, and most commands, only make calls that are documents. */
const streamingHttp = ({ url }: Endpoint): typeof http | typeof https =>
  process.getBuiltinModule(url.protocol === 'https:' ? 'node:https' : 'node:http') as typeof http;

/** By events: to iterate a stream costs a tenth of a short call. */
const readAll = (response: IncomingMessage): Promise<string> => {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const chunks: Buffer[] = [];
  response.on('data', (chunk: Buffer) => chunks.push(chunk));
  response.once('end', () => resolve(Buffer.concat(chunks).toString()));
  response.once('error', reject);
  response.once('close', () => reject(new Error('the answer was cut short')));
  return promise;
};
