import { GatheredBytes } from '@coppice/runtime';
import { unfinishedTail } from '../../inside/output-text.ts';
import { fileType } from './file-type.ts';
import type { ToolContext } from './tool-context.ts';

export interface GuestFile {
  readonly content: string;
  readonly encoding: 'utf-8' | 'base64';
  readonly mimeType: string;
  /** Of the whole file; null where only its end says, as in /proc. */
  readonly sizeBytes: number | null;
  /** What the content stands for; the next part starts after it. */
  readonly bytes: number;
  readonly truncated: boolean;
}

/** A part of a file of a sandbox, as text where it is text. */
export const readGuestFile = async (
  context: ToolContext,
  id: string,
  path: string,
  offset: number,
  limit: number,
): Promise<GuestFile> => {
  // One byte more than asked for tells whether there is more.
  const params = { sandbox: id };
  const { bytes: source, sizeBytes } = await context.call('readFile', {
    params,
    query: { path, offset, length: limit + 1 },
  });
  const gathered = new GatheredBytes();
  for await (const chunk of source) gathered.add(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length));
  const read = gathered.bytes;
  const truncated = read.length > limit;
  let part = truncated ? read.subarray(0, limit) : read;
  const { isText, mimeType } = fileType(path, part, truncated);
  if (isText && truncated) part = part.subarray(0, part.length - unfinishedTail(part));
  const whole = truncated
    ? (await context.call('statFile', { params, query: { path } })).size_bytes
    : offset + read.length;
  return {
    content: part.toString(isText ? 'utf8' : 'base64'),
    encoding: isText ? 'utf-8' : 'base64',
    mimeType,
    sizeBytes: sizeBytes === undefined && truncated ? null : whole,
    bytes: part.length,
    truncated,
  };
};
