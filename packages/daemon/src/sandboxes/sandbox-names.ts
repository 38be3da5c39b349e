import { randomInt } from 'node:crypto';
import { CoppiceError, defaultProject } from '@coppice/protocol';
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
 * Names that nobody asked for by name, each unique within its project. One that is given out is held until its work is done, so
 * that calls that run beside each other never get the same, nor one that somebody else is given by name meanwhile.
 */
export class SandboxNames {
  readonly #state: State;
  readonly #held = new Set<string>();

  constructor(state: State) {
    this.#state = state;
  }

  /** A made-up name that nobody has now. */
  make(project: string = defaultProject): string {
    for (;;) {
      const number = randomInt(36 ** 3)
        .toString(36)
        .padStart(3, '0');
      const name = `${pick(moods)}-${pick(trees)}-${number}`;
      if (this.#isFree(project, name)) return name;
    }
  }

  /** Runs the work with a made-up name: the one that was made before, where it is still free. */
  async withFresh<T>(project: string, work: (name: string) => Promise<T>, before?: string): Promise<T> {
    const name = before !== undefined && this.#isFree(project, before) ? before : this.make(project);
    return this.#holding(project, [name], () => work(name));
  }

  /** Runs the work with as many names, the first that are free of prefix-1, prefix-2 and so on. */
  async withNumbered<T>(
    project: string,
    prefix: string,
    count: number,
    work: (names: string[]) => Promise<T>,
  ): Promise<T> {
    const names: string[] = [];
    for (let n = 1; names.length < count; n += 1)
      if (this.#isFree(project, `${prefix}-${n}`)) names.push(`${prefix}-${n}`);
    return this.#holding(project, names, () => work(names));
  }

  assertFree(project: string, name: string): void {
    assertNameFree(this.#state, project, name);
    if (this.#held.has(`${project}/${name}`))
      throw new CoppiceError('name_taken', `a sandbox named ${name} is being made right now`, {
        hint: 'Choose another name.',
      });
  }

  #isFree(project: string, name: string): boolean {
    return !this.#held.has(`${project}/${name}`) && this.#state.sandboxes.byName(project, name) === undefined;
  }

  async #holding<T>(project: string, names: readonly string[], work: () => Promise<T>): Promise<T> {
    for (const name of names) this.#held.add(`${project}/${name}`);
    try {
      return await work();
    } finally {
      for (const name of names) this.#held.delete(`${project}/${name}`);
    }
  }
}

export function assertNameFree(state: State, project: string, name: string): void {
  if (state.sandboxes.byName(project, name) === undefined) return;
  const where = project === defaultProject ? '' : ` in the project ${project}`;
  throw new CoppiceError('name_taken', `there is already a sandbox named ${name}${where}`, {
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
