/**
 * Names in a filesystem are bytes; paths in changes are text. Bytes that are not UTF-8 become lone surrogates
 * (U+DC80 + byte - 0x80), so that every name has one text and finds its way back.
 */
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export const textOfBytes = (bytes: Buffer): string => {
  try {
    return decoder.decode(bytes);
  } catch {
    return textOfOddBytes(bytes);
  }
};

const textOfOddBytes = (bytes: Buffer): string => {
  let text = '';
  for (let at = 0; at < bytes.length; ) {
    const length = sequenceLength(bytes[at]!);
    const part = bytes.subarray(at, at + length);
    try {
      text += decoder.decode(part);
      at += length;
    } catch {
      text += String.fromCharCode(0xdc00 + bytes[at]!);
      at += 1;
    }
  }
  return text;
};

const sequenceLength = (first: number): number =>
  first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;

export const bytesOfText = (text: string): Buffer => {
  if (text.isWellFormed()) return Buffer.from(text);
  const parts: Buffer[] = [];
  for (const character of text) {
    const code = character.charCodeAt(0);
    const odd = character.length === 1 && code >= 0xdc80 && code <= 0xdcff;
    parts.push(odd ? Buffer.from([code - 0xdc00]) : Buffer.from(character));
  }
  return Buffer.concat(parts);
};
