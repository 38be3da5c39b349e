import { readFileSync } from 'node:fs';

/** `0-2,5` as the kernel writes it. */
const parseProcessors = (text: string): number[] =>
  text
    .trim()
    .split(',')
    .flatMap((part) => {
      const [first, last = first] = part.split('-').map(Number);
      return Array.from({ length: last! - first! + 1 }, (_, index) => first! + index);
    });

/** Hands out processors in turn, so that sandboxes that may use a few of them share all. */
export class Processors {
  readonly #usable: readonly number[];
  #next = 0;

  /** Those that this process may use itself. */
  constructor(usable = usableProcessors()) {
    this.#usable = usable;
  }

  get all(): string {
    return this.#usable.join(',');
  }

  /** As many as programs shall count; undefined where that is all of them. */
  choose(cpus: number): string | undefined {
    const count = Math.ceil(cpus);
    if (count >= this.#usable.length) return undefined;
    const chosen = Array.from(
      { length: count },
      (_, index) => this.#usable[(this.#next + index) % this.#usable.length]!,
    );
    this.#next = (this.#next + count) % this.#usable.length;
    return chosen.sort((a, b) => a - b).join(',');
  }
}

function usableProcessors(): number[] {
  const status = readFileSync('/proc/self/status', 'utf8');
  return parseProcessors(/^Cpus_allowed_list:\s*(\S+)$/m.exec(status)?.[1] ?? '0');
}
