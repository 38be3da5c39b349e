import type { Readable } from 'node:stream';

export interface HttpCall {
  readonly method: string;
  readonly path: string;
  /** JSON text. */
  readonly body?: string;
  /** A byte stream instead of JSON. */
  readonly upload?: Readable;
  readonly uploadBytes?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}
