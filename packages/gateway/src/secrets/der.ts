/** The few forms of DER that a certificate is made of. */

const tagged = (tag: number, content: Buffer): Buffer => {
  const { length } = content;
  const digits: number[] = [];
  for (let left = length; left > 0; left >>= 8) digits.unshift(left & 0xff);
  const size = length < 0x80 ? [length] : [0x80 | digits.length, ...digits];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
};

export const sequence = (...parts: readonly Buffer[]): Buffer => tagged(0x30, Buffer.concat(parts));
export const set = (...parts: readonly Buffer[]): Buffer => tagged(0x31, Buffer.concat(parts));
export const octets = (content: Buffer): Buffer => tagged(0x04, content);
export const bits = (content: Buffer, unused = 0): Buffer =>
  tagged(0x03, Buffer.concat([Buffer.from([unused]), content]));
export const text = (value: string): Buffer => tagged(0x0c, Buffer.from(value, 'utf8'));
export const boolean = (value: boolean): Buffer => tagged(0x01, Buffer.from([value ? 0xff : 0]));
/** `context(0, …)` is `[0]`; constructed unless told otherwise. */
export const context = (number: number, content: Buffer, constructed = true): Buffer =>
  tagged(0x80 | (constructed ? 0x20 : 0) | number, content);

/** Not negative: a first bit that is set gets a zero before it. */
export const integer = (bytes: Buffer): Buffer =>
  tagged(0x02, bytes[0]! & 0x80 ? Buffer.concat([Buffer.from([0]), bytes]) : bytes);

export const oid = (dotted: string): Buffer => {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number);
  const bytes = [first * 40 + second];
  for (const part of rest) {
    const digits = [part & 0x7f];
    for (let left = part >> 7; left > 0; left >>= 7) digits.unshift((left & 0x7f) | 0x80);
    bytes.push(...digits);
  }
  return tagged(0x06, Buffer.from(bytes));
};

/** Years from 2050 on have another form than those before. */
export const time = (date: Date): Buffer => {
  const plain = date.toISOString().replace(/[-:T]|\.\d+/g, '');
  return date.getUTCFullYear() < 2050
    ? tagged(0x17, Buffer.from(plain.slice(2), 'latin1'))
    : tagged(0x18, Buffer.from(plain, 'latin1'));
};
