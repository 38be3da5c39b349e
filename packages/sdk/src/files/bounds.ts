import { CoppiceError } from '@coppice/protocol/errors';

/** How much is taken out of a sandbox where nobody says otherwise. A sandbox can say that a file of holes has terabytes. */
export const defaultTakeOut = { maxBytes: 16 * 1024 ** 3, maxFiles: 1_000_000 } as const;

const hint = 'Raise --max-size or --max-files (maxBytes and maxFiles in the SDK), or take out a part of it.';

export const tooMany = (maxFiles: number): CoppiceError =>
  new CoppiceError('too_large', `the sandbox sends more than ${maxFiles} files and directories`, { hint });

/** Passes bytes on, and fails with the first one that is too many. */
export async function* boundedBytes(
  source: AsyncIterable<Uint8Array>,
  maxBytes: number = defaultTakeOut.maxBytes,
): AsyncGenerator<Uint8Array, void, undefined> {
  let bytes = 0;
  for await (const chunk of source) {
    bytes += chunk.length;
    if (bytes > maxBytes)
      throw new CoppiceError('too_large', `the sandbox sends more than ${maxBytes} bytes`, { hint });
    yield chunk;
  }
}
