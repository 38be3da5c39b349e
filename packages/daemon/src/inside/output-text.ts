import { isUtf8 } from 'node:buffer';

/** Output as text, and as base64 too where it is not text. */
export const outputText = (bytes: Buffer): { text: string; base64: string | null } => ({
  text: bytes.toString('utf8'),
  base64: isUtf8(bytes) ? null : bytes.toString('base64'),
});

/**
 * How many bytes at the end are the start of a UTF-8 character that goes on later: text that is cut there is whole.
 * 0 where the end is whole, or is no UTF-8 at all.
 */
export const unfinishedTail = (bytes: Buffer): number => {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back] as number;
    if ((byte & 0xc0) === 0x80) continue;
    const length = byte >= 0xf8 ? 1 : byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
};
