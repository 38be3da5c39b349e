import type http from 'node:http';
import type { IncomingMessage, RequestOptions } from 'node:http';
import type https from 'node:https';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { deferred } from '../connection/deferred.ts';
import { errorFromConnection } from '../connection/problem.ts';
import type {
  HttpCall,
  LocalDirectories,
  MessageSocket,
  OpenAnswer,
  Transport,
  WholeAnswer,
} from '../connection/transport.ts';
import { DocumentCalls } from './document-calls.ts';
import { type Endpoint, pathPrefix } from './endpoint.ts';

const maxFreeSockets = 64;

/** Kept-open connections to one daemon. It is looked up on the first call, and again after it went away. */
export class NodeTransport implements Transport {
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

  async document(call: HttpCall): Promise<WholeAnswer> {
    if (call.upload !== undefined) return this.#answerToUpload(call);
    this.#documents ??= new DocumentCalls(this.endpoint);
    try {
      return await this.#documents.call(call);
    } catch (error) {
      throw this.#failure(error as Error, call);
    }
  }

  async open(call: HttpCall): Promise<OpenAnswer> {
    const response = await this.#send(call);
    return {
      status: response.statusCode ?? 0,
      body: this.#body(response, call),
      close: () => response.destroy(),
    };
  }

  /** Loaded when it is used, with the WebSocket client below it. */
  async socket(path: string, signal?: AbortSignal): Promise<MessageSocket> {
    const { NodeSocket } = await import('./node-socket.ts');
    return NodeSocket.open(this.endpoint, this.where, path, signal);
  }

  /** Loaded when it is used: most clients never move a directory. */
  async directories(): Promise<LocalDirectories> {
    const [{ packDirectory: pack }, { unpackDirectory: unpack }] = await Promise.all([
      import('./pack-directory.ts'),
      import('./unpack-directory.ts'),
    ]);
    return { pack, unpack };
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

  async #answerToUpload(call: HttpCall): Promise<WholeAnswer> {
    const response = await this.#send(call);
    try {
      return { status: response.statusCode ?? 0, text: await readAll(response) };
    } catch (error) {
      throw this.#failure(error as Error, call);
    }
  }

  async *#body(response: IncomingMessage, call: HttpCall): AsyncGenerator<Buffer, void, undefined> {
    try {
      for await (const chunk of response) yield chunk as Buffer;
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
    const { promise, resolve, reject } = deferred<IncomingMessage>();
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
    if (call.upload === undefined || call.upload instanceof Uint8Array) {
      // Headers and body leave in one write.
      request.end(call.upload ?? call.body);
    } else {
      const source = readableOf(call.upload);
      source.once('error', (error) => {
        sourceError = error;
      });
      // A broken pipe also reaches the request's own error event, and an early refusal comes as an answer.
      pipeline(source, request).catch(() => undefined);
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
      const length = lengthOf(call);
      if (length !== undefined) headers['content-length'] = length;
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

const lengthOf = ({ upload, uploadBytes }: HttpCall): number | undefined => {
  if (upload instanceof Uint8Array) return upload.length;
  return upload instanceof Blob ? upload.size : uploadBytes;
};

const readableOf = (upload: Blob | AsyncIterable<Uint8Array>): Readable => {
  if (upload instanceof Readable) return upload;
  return Readable.from(upload instanceof Blob ? upload.stream() : upload, { objectMode: false });
};

/** Loaded when it is used: most programs, and most commands, only make calls that are documents. */
const streamingHttp = ({ url }: Endpoint): typeof http | typeof https =>
  process.getBuiltinModule(url.protocol === 'https:' ? 'node:https' : 'node:http') as typeof http;

/** By events: to iterate a stream costs a tenth of a short call. */
const readAll = (response: IncomingMessage): Promise<string> => {
  const { promise, resolve, reject } = deferred<string>();
  const chunks: Buffer[] = [];
  response.on('data', (chunk: Buffer) => chunks.push(chunk));
  response.once('end', () => resolve(Buffer.concat(chunks).toString()));
  response.once('error', reject);
  response.once('close', () => reject(new Error('the answer was cut short')));
  return promise;
};
