import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { ServerEvent } from '../call.ts';
import { toCoppiceError, toProblem } from '../problem.ts';

const heartbeatMs = 15_000;

const format = ({ id, event, data }: ServerEvent): string =>
  `${id === undefined ? '' : `id: ${id}\n`}${event === undefined ? '' : `event: ${event}\n`}data: ${JSON.stringify(data)}\n\n`;

/** Writes events as they come, no faster than the reader takes them, until the source ends or the reader goes or takes nothing. */
export const writeEvents = async (
  response: ServerResponse,
  events: AsyncIterable<ServerEvent>,
  { signal, stalledReaderMs }: { readonly signal: AbortSignal; readonly stalledReaderMs: number },
): Promise<void> => {
  response.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
  });
  response.flushHeaders();
  const heartbeat = setInterval(() => {
    // Nothing is added to what a reader has not taken.
    if (!response.writableNeedDrain) response.write(': still here\n\n');
  }, heartbeatMs);
  const taken = async (): Promise<void> => {
    const timer = setTimeout(() => response.destroy(), stalledReaderMs);
    try {
      await once(response, 'drain', { signal });
    } finally {
      clearTimeout(timer);
    }
  };
  try {
    for await (const event of events) {
      if (signal.aborted) break;
      if (!response.write(format(event))) await taken();
    }
  } catch (error) {
    if (!signal.aborted) response.write(format({ event: 'error', data: toProblem(toCoppiceError(error)) }));
  } finally {
    clearInterval(heartbeat);
    response.end();
  }
};
