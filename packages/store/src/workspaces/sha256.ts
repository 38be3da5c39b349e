/** The first 32 bits of the fraction of a root of each of the first primes: where the constants of SHA-256 come from. */
const fractions = (count: number, root: (prime: number) => number): number[] => {
  const found: number[] = [];
  for (let number = 2, primes: number[] = []; found.length < count; number += 1) {
    if (primes.some((prime) => number % prime === 0)) continue;
    primes = [...primes, number];
    found.push(((root(number) % 1) * 2 ** 32) | 0);
  }
  return found;
};

const turn = (word: number, by: number): number => (word >>> by) | (word << (32 - by));

const mix = (state: Int32Array, words: Int32Array, constants: readonly number[]): void => {
  let [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0] = state;
  for (let round = 0; round < 64; round += 1) {
    if (round >= 16) {
      const early = words[round - 15] ?? 0;
      const late = words[round - 2] ?? 0;
      words[round] =
        (words[round - 16] ?? 0) +
        (turn(early, 7) ^ turn(early, 18) ^ (early >>> 3)) +
        (words[round - 7] ?? 0) +
        (turn(late, 17) ^ turn(late, 19) ^ (late >>> 10));
    }
    const first =
      h +
      (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) +
      ((e & f) ^ (~e & g)) +
      (constants[round] ?? 0) +
      (words[round] ?? 0);
    const second = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
  }
  for (const [at, word] of [a, b, c, d, e, f, g, h].entries()) state[at] = (state[at] ?? 0) + word;
};

/**
 * For the few lines that a command adds to its log: loading node:crypto takes ten times as long as hashing them here.
 * Whoever checks a whole log uses node:crypto, so that the two watch each other.
 */
export const sha256 = (text: string): string => {
  const bytes = Buffer.from(text);
  const padded = Buffer.alloc((((bytes.length + 8) >> 6) + 1) * 64);
  bytes.copy(padded);
  padded[bytes.length] = 0x80;
  padded.writeBigUInt64BE(BigInt(bytes.length) * 8n, padded.length - 8);
  const state = Int32Array.from(fractions(8, Math.sqrt));
  const constants = fractions(64, Math.cbrt);
  const words = new Int32Array(64);
  for (let at = 0; at < padded.length; at += 64) {
    for (let word = 0; word < 16; word += 1) words[word] = padded.readInt32BE(at + 4 * word);
    mix(state, words, constants);
  }
  return [...state].map((word) => (word >>> 0).toString(16).padStart(8, '0')).join('');
};
