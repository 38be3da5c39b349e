import { CoppiceError } from '@coppice/protocol';
import { z } from 'zod';
import type { ToolContext } from './tool-context.ts';

/** A file of the host that a tool reads or writes. The transfer directory refuses all that lies outside of it. */
export const hostPath = z
  .string()
  .min(1)
  .max(4096)
  .describe('On the host, inside the transfer directory: absolute, or relative to it.');

/** What to do where the host has no such file. */
export const fileForTransfer = 'Put the file into the transfer directory first';

/** Does something with the bytes of a file of the transfer directory, until the call is cancelled. */
export async function fromHost<T>(
  context: ToolContext,
  path: string,
  work: (bytes: AsyncIterable<Uint8Array>) => Promise<T>,
): Promise<T> {
  const { file } = await context.transfers.read(path);
  try {
    return await work(
      file.createReadStream({ autoClose: false, highWaterMark: 1024 * 1024, signal: context.signal }),
    );
  } finally {
    await file.close();
  }
}

/** Writes a file of the transfer directory, whole or not at all. */
export const toHost = (
  context: ToolContext,
  path: string,
  bytes: AsyncIterable<Uint8Array>,
): Promise<{ bytes: number }> => context.transfers.write(path, untilAborted(bytes, context.signal));

async function* untilAborted<T>(source: AsyncIterable<T>, signal: AbortSignal): AsyncIterable<T> {
  for await (const item of source) {
    if (signal.aborted) throw new CoppiceError('cancelled', 'the call was cancelled');
    yield item;
  }
}
