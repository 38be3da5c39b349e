import { GatheredBytes } from '@coppice/runtime';
import { unfinishedTail } from '../../inside/output-text.ts';
import { startWithin } from '../../text/estimate-tokens.ts';
import { bytesPerToken, textTokens } from './answer-size.ts';
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

/** Read where nobody says how much: all of a picture, which costs by its size on a screen, or what an answer can hold. */
const wholeBytes = 262_144;

const wholeCharacters = (bytes: Buffer, isText: boolean): Buffer =>
  isText ? bytes.subarray(0, bytes.length - unfinishedTail(bytes)) : bytes;

const affordable = (bytes: Buffer, isText: boolean): Buffer => {
  if (!isText) return bytes.subarray(0, Math.floor(textTokens * bytesPerToken));
  const text = wholeCharacters(bytes, isText).toString('utf8');
  return bytes.subarray(0, Buffer.byteLength(startWithin(text, textTokens)));
};

/** A part of a file of a sandbox, as text where it is text. */
export const readGuestFile = async (
  context: ToolContext,
  id: string,
  path: string,
  { offset, limit }: { offset: number; limit?: number | undefined },
): Promise<GuestFile> => {
  const mostBytes = limit ?? wholeBytes;
  // One byte more than asked for tells whether there is more.
  const params = { sandbox: id };
  const { bytes: source, sizeBytes } = await context.call('readFile', {
    params,
    query: { path, offset, length: mostBytes + 1 },
  });
  const gathered = new GatheredBytes();
  for await (const chunk of source) gathered.add(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length));
  const read = gathered.bytes;
  const first = read.subarray(0, mostBytes);
  const { isText, mimeType } = fileType(path, first, read.length > mostBytes);
  const isWholeImage = mimeType.startsWith('image/') && offset === 0 && read.length <= mostBytes;
  const part =
    limit === undefined && !isWholeImage ? affordable(first, isText) : wholeCharacters(first, isText);
  const truncated = read.length > part.length;
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
