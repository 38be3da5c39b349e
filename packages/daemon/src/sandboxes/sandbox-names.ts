import { randomInt } from 'node:crypto';
import { CoppiceError } from '@coppice/protocol';
import type { State } from '../db/state.ts';

const moods = [
  'brisk',
  'calm',
  'clever',
  'eager',
  'fair',
  'gentle',
  'keen',
  'lucid',
  'merry',
  'nimble',
  'plain',
  'quick',
  'quiet',
  'rapid',
  'sharp',
  'sleek',
  'solid',
  'spry',
  'sunny',
  'swift',
  'tidy',
  'vivid',
  'warm',
  'wise',
];
const trees = [
  'alder',
  'apple',
  'ash',
  'aspen',
  'beech',
  'birch',
  'cedar',
  'cherry',
  'elder',
  'elm',
  'fir',
  'hazel',
  'holly',
  'larch',
  'lime',
  'maple',
  'oak',
  'olive',
  'pear',
  'pine',
  'plum',
  'rowan',
  'willow',
  'yew',
];

const pick = (words: readonly string[]): string => words[randomInt(words.length)]!;

/**
 * Names that nobody asked for by name. One that is given out is held until its work is done, so that calls that run beside
 * each other never get the same, nor one that somebody else is given by name meanwhile.
 */
export class SandboxNames {
  readonly #state: State;
  readonly #held = new Set<string>();

  constructor(state: State) {
    this.#state = state;
  }

  /** A made-up name that nobody has now. */
  make(): string {
    for (;;) {
      const number = randomInt(36 ** 3)
        .toString(36)
        .padStart(3, '0');
      const name = `${pick(moods)}-${pick(trees)}-${number}`;
      if (this.#isFree(name)) return name;
    }
  }

  /** Runs the work with a made-up name: the one that was made before, where it is still free. */
  async withFresh<T>(work: (name: string) => Promise<T>, before?: string): Promise<T> {
    const name = before !== undefined && this.#isFree(before) ? before : this.make();
    return this.#holding([name], () => work(name));
  }

  /** Runs the work with as many names, the first that are free of prefix-1, prefix-2 and so on. */
  async withNumbered<T>(prefix: string, count: number, work: (names: string[]) => Promise<T>): Promise<T> {
    const names: string[] = [];
    for (let n = 1; names.length < count; n += 1)
      if (this.#isFree(`${prefix}-${n}`)) names.push(`${prefix}-${n}`);
    return this.#holding(names, () => work(names));
  }

  assertFree(name: string): void {
    assertNameFree(this.#state, name);
    if (this.#held.has(name))
      throw new CoppiceError('name_taken', `a sandbox named ${name} is being made right now`, {
        hint: 'Choose another name.',
      });
  }

  #isFree(name: string): boolean {
    return !this.#held.has(name) && this.#state.sandboxes.byName(name) === undefined;
  }

  async #holding<T>(names: readonly string[], work: () => Promise<T>): Promise<T> {
    for (const name of names) this.#held.add(name);
    try {
      return await work();
    } finally {
      for (const name of names) this.#held.delete(name);
    }
  }
}

export function assertNameFree(state: State, name: string): void {
  if (state.sandboxes.byName(name) === undefined) return;
  throw new CoppiceError('name_taken', `there is already a sandbox named ${name}`, {
    hint: 'Choose another name, or remove that one with `coppice rm`.',
  });
}

/** What a name becomes as a hostname: lower case, letters, digits and hyphens. */
export const hostnameOf = (name: string): string =>
  name
    .toLowerCase()
    .replace(/[^a-z0-9-]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 63) || 'sandbox';
