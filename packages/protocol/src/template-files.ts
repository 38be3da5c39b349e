import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { CoppiceError } from './errors.ts';

export interface TemplateFilesOptions<T> {
  readonly directory: string;
  readonly shipped: readonly T[];
  /** Throws what is wrong with the content of a file. */
  readonly read: (content: unknown, where: string) => T;
  readonly nameOf: (template: T) => string;
  /** What they are, for people. */
  readonly what: string;
}

/** Templates that ship, and those of the operator: JSON files in a directory, which come first and are read when they are asked for. */
export class TemplateFiles<T> {
  readonly #options: TemplateFilesOptions<T>;

  constructor(options: TemplateFilesOptions<T>) {
    this.#options = options;
  }

  list(): T[] {
    const { shipped, nameOf } = this.#options;
    const own = this.#files().map((file) => this.#read(file));
    const names = new Set(own.map(nameOf));
    return [...own, ...shipped.filter((template) => !names.has(nameOf(template)))];
  }

  /** A file that is wrong concerns nobody but who asks for what may be in it. */
  get(name: string): T {
    const { directory, shipped, nameOf, what } = this.#options;
    const wrong: Error[] = [];
    for (const file of this.#files())
      try {
        const template = this.#read(file);
        if (nameOf(template) === name) return template;
      } catch (error) {
        if (basename(file) === `${name}.json`) throw error;
        wrong.push(error as Error);
      }
    const found = shipped.find((template) => nameOf(template) === name);
    if (found !== undefined) return found;
    if (wrong[0] !== undefined) throw wrong[0];
    throw new CoppiceError('not_found', `there is no ${what} ${name}`, {
      hint: `There are: ${this.list().map(nameOf).join(', ')}. Your own go into ${directory} as ${name}.json.`,
    });
  }

  #files(): string[] {
    const { directory } = this.#options;
    const names = existsSync(directory) ? readdirSync(directory) : [];
    return names
      .filter((name) => name.endsWith('.json'))
      .sort()
      .map((name) => join(directory, name));
  }

  #read(where: string): T {
    let content: unknown;
    try {
      content = JSON.parse(readFileSync(where, 'utf8'));
    } catch (cause) {
      throw new CoppiceError('invalid_argument', `${where} is no JSON: ${(cause as Error).message}`, {
        hint: 'Correct the file, or remove it.',
        cause,
      });
    }
    return this.#options.read(content, where);
  }
}
