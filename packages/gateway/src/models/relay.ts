import type { ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import type { AnswerReader } from './answer-reader.ts';
import type { EventFilter } from './event-filter.ts';

export interface RelayOptions {
  readonly reader: AnswerReader;
  readonly filter: EventFilter | undefined;
  /** How long an upstream that we wait for may be silent. */
  readonly stallTimeoutMs: number;
  /** Sees every chunk as the upstream sent it. */
  readonly onChunk?: (chunk: Buffer) => void;
}

/** The head of an answer, and its body as it comes. */
export interface Answer {
  readonly status: number;
  /** As the client gets them. */
  readonly headers: Record<string, string | string[]>;
  readonly contentType: string;
  readonly retryAfterMs: number;
  /** `complete` is false where it ended before all that was announced had come. */
  readonly body: Readable & { readonly complete?: boolean };
}

export type RelayEnd = 'whole' | 'cancelled' | 'cut';

/**
 * Passes the body of an answer on as it comes, no faster than the client takes it. When the client goes away the upstream
 * is left at once. The answer is not ended here: the caller writes down what it cost first.
 */
export function relay(
  upstream: Answer['body'],
  client: ServerResponse,
  options: RelayOptions,
): Promise<RelayEnd> {
  return new Promise((resolve) => {
    // A client that takes nothing for as long as that is gone as well.
    const stall = setTimeout(() => finish(upstream.isPaused() ? 'cancelled' : 'cut'), options.stallTimeoutMs);
    const finish = (end: RelayEnd): void => {
      clearTimeout(stall);
      client.off('close', onClientClose);
      client.off('drain', onDrain);
      if (end !== 'whole') upstream.destroy();
      resolve(end);
    };
    const onClientClose = (): void => finish('cancelled');
    const onDrain = (): void => {
      stall.refresh();
      upstream.resume();
    };
    const write = (bytes: Buffer): void => {
      if (bytes.length === 0 || client.write(bytes)) return;
      upstream.pause();
    };
    client.on('close', onClientClose);
    client.on('drain', onDrain);
    upstream.on('data', (chunk: Buffer) => {
      stall.refresh();
      options.reader.feed(chunk);
      options.onChunk?.(chunk);
      write(options.filter === undefined ? chunk : options.filter.feed(chunk));
    });
    upstream.once('end', () => {
      if (options.filter !== undefined) write(options.filter.end());
      finish(upstream.complete === false ? 'cut' : 'whole');
    });
    upstream.once('error', () => finish('cut'));
    upstream.once('close', () => finish('cut'));
    if (client.destroyed) finish('cancelled');
  });
}
