const decoder = new TextDecoder('utf-8', { fatal: true });
const surrogate = /[\udc80-\udcff]/;

/**
 * The bytes of a name that is not UTF-8 become lone surrogates, as in Python: no other name has the same text, and
 * `os.fsencode` of it, also after JSON, gives the bytes back.
 */
export const pathText = (bytes: Uint8Array): string => {
  try {
    return decoder.decode(bytes);
  } catch {
    return [...bytes].map((byte) => String.fromCharCode(byte < 0x80 ? byte : 0xdc00 + byte)).join('');
  }
};

/** The bytes that such a text stands for. */
export const pathBytes = (text: string): Buffer => {
  if (!surrogate.test(text)) return Buffer.from(text);
  // By code points: half of a pair is no lone surrogate.
  return Buffer.concat(
    Array.from(text, (sign) =>
      surrogate.test(sign) && sign.length === 1 ? Buffer.of(sign.charCodeAt(0) & 0xff) : Buffer.from(sign),
    ),
  );
};
