/** Numbers that look random and are the same again for the same seed (sfc32). */
export class Random {
  #a = 0x9e3779b9;
  #b = 0x243f6a88;
  #c: number;
  #count = 1;

  constructor(seed: number) {
    this.#c = seed >>> 0;
    this.#a ^= Math.floor(seed / 4_294_967_296) >>> 0;
    for (let index = 0; index < 15; index += 1) this.#next();
  }

  /** A whole number from 0 to below the limit. */
  below(limit: number): number {
    return Math.floor((this.#next() / 4_294_967_296) * limit);
  }

  /** Another order of the same things. */
  shuffled<T>(items: readonly T[]): T[] {
    const result = [...items];
    for (let index = result.length - 1; index > 0; index -= 1) {
      const other = this.below(index + 1);
      [result[index], result[other]] = [result[other]!, result[index]!];
    }
    return result;
  }

  #next(): number {
    const sum = (this.#a + this.#b + this.#count) | 0;
    this.#count = (this.#count + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + sum) | 0;
    return sum >>> 0;
  }
}
