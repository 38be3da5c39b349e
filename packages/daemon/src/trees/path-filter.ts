import { posix } from 'node:path';
import { CoppiceError, PathGlob } from '@coppice/protocol';

export interface PathChoice {
  /** Only these, and what is below them; all without any. */
  readonly path?: readonly string[] | undefined;
  /** Not these, nor what is below: an absolute path, or a name that stands for all that is so called, where `*` is any letters. */
  readonly exclude?: readonly string[] | undefined;
}

/** Says which paths a comparison or a merge is about. */
export class PathFilter {
  readonly #places: readonly string[];
  readonly #excluded: readonly string[];
  readonly #names: readonly PathGlob[];

  constructor({ path = [], exclude = [] }: PathChoice) {
    this.#places = path.map(absolute);
    this.#excluded = exclude.filter((entry) => entry.includes('/')).map(absolute);
    this.#names = exclude.filter((entry) => !entry.includes('/')).map((name) => new PathGlob(name));
  }

  /** Whether nothing is left out. */
  get isWhole(): boolean {
    return this.#places.every((place) => place === '/') && this.#excluded.length + this.#names.length === 0;
  }

  has(path: string): boolean {
    return (
      (this.#places.length === 0 || this.#places.some((place) => isIn(path, place))) &&
      !this.#excluded.some((place) => isIn(path, place)) &&
      (this.#names.length === 0 || !path.split('/').some((part) => this.#isNamed(part)))
    );
  }

  /** Whether a directory is wanted with all that may be in it. */
  hasAllOf(directory: string): boolean {
    return (
      this.has(directory) &&
      this.#names.length === 0 &&
      !this.#excluded.some((place) => isIn(place, directory))
    );
  }

  #isNamed(part: string): boolean {
    return this.#names.some((name) => name.matches(part));
  }
}

/** Without those that lie below another one of them. */
export const outermost = (paths: readonly string[]): string[] => {
  const places = [...new Set(paths.map(absolute))];
  return places.filter((path) => !places.some((other) => other !== path && isIn(path, other)));
};

const absolute = (path: string): string => {
  if (!path.startsWith('/'))
    throw new CoppiceError('invalid_argument', `${path} does not begin with a slash`, {
      hint: 'Give the path as it is inside of the sandbox, for example /workspace.',
    });
  const clean = posix.normalize(path);
  return clean.length > 1 && clean.endsWith('/') ? clean.slice(0, -1) : clean;
};

const isIn = (path: string, place: string): boolean =>
  place === '/' || path === place || (path.startsWith(place) && path[place.length] === '/');
