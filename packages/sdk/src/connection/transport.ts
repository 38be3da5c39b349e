import type { Progress, TakeOut } from '../files/progress.ts';

/** Bytes to send: all at once, or as they come. */
export type UploadBody = Uint8Array | Blob | AsyncIterable<Uint8Array>;

export interface HttpCall {
  readonly method: string;
  readonly path: string;
  /** JSON text. */
  readonly body?: string;
  /** Bytes instead of JSON. */
  readonly upload?: UploadBody;
  /** The length of an upload that comes piece by piece, when it is known. */
  readonly uploadBytes?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

export interface WholeAnswer {
  readonly status: number;
  readonly text: string;
}

/** An answer whose body is read as it comes. */
export interface OpenAnswer {
  readonly status: number;
  readonly body: AsyncIterable<Uint8Array>;
  /** Closes the connection if the body was not read to its end. */
  close(): void;
}

/** Bytes that came as one message. */
export interface BinaryMessage {
  readonly data: Uint8Array;
  /** Call it when `data` is no longer needed: its memory is then used for the messages that follow. */
  readonly release: () => void;
}

/** A WebSocket. Iterate it for its messages; a slow reader slows the sender down where the platform can. */
export interface MessageSocket extends AsyncIterable<BinaryMessage | string> {
  readonly isOpen: boolean;
  /** Resolves once the message was handed on, so that a fast writer waits for a slow reader. */
  send(data: Uint8Array | string): Promise<void>;
  close(): void;
}

/** Directories of the machine that the client runs on. */
export interface LocalDirectories {
  /** A directory as a tar stream. */
  pack(directory: string, onProgress?: Progress): AsyncIterable<Uint8Array>;
  unpack(
    tar: AsyncIterable<Uint8Array>,
    directory: string,
    options?: TakeOut,
  ): Promise<{ files: number; bytes: number }>;
}

/**
 * How a client reaches its daemon. Node uses sockets of its own, a browser fetch and WebSocket. Every method throws a
 * CoppiceError when the daemon cannot be reached or the call is cancelled; a status is the caller's to judge.
 */
export interface Transport {
  /** Where it connects to, for messages. */
  readonly where: string;
  /** A call whose answer is short enough to be held as a whole. */
  document(call: HttpCall): Promise<WholeAnswer>;
  open(call: HttpCall): Promise<OpenAnswer>;
  socket(path: string, signal?: AbortSignal): Promise<MessageSocket>;
  /** Loads what moves directories; throws `unsupported` where there are none. */
  directories(): Promise<LocalDirectories>;
  /** Closes idle connections. The transport can be used again afterwards. */
  close(): void;
}
