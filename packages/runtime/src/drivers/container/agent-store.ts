import { createHash } from 'node:crypto';
import {
  closeSync,
  copyFileSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { join } from 'node:path';

const digestChars = 16;

/**
 * Every agent that sandboxes of this home run, or that a checkpoint may go on with, by its digest. A new version takes the place
 * of the program that was installed, but memory that was kept needs the very file that it is of.
 */
export class AgentStore {
  readonly #directory: string;
  readonly #program: string;
  #current: string | undefined;

  constructor(directory: string, program: string) {
    this.#directory = directory;
    this.#program = program;
  }

  /** The one that is installed. */
  get current(): string {
    this.#current ??= this.#keep();
    return this.#current;
  }

  path(name: string): string {
    return join(this.#directory, name);
  }

  has(name: string): boolean {
    return existsSync(this.path(name));
  }

  /** All but the one that is installed; with what is left of a copy that was cut short. */
  others(): string[] {
    const names = existsSync(this.#directory) ? readdirSync(this.#directory) : [];
    if (names.length === 0) return [];
    const installed = this.#installed();
    return names.filter((name) => name !== installed);
  }

  remove(name: string): void {
    rmSync(this.path(name), { force: true });
  }

  #installed(): string {
    return nameOf(this.#program);
  }

  /** One that a loss of power left torn, as earlier versions did not wait for the disk, is made again. */
  #keep(): string {
    const name = this.#installed();
    if (this.has(name) && nameOf(this.path(name)) === name) return name;
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
    // Under another name first: a copy that was cut short is none.
    const draft = this.path(`${name}.${process.pid}`);
    copyFileSync(this.#program, draft);
    const copy = openSync(draft, 'r');
    try {
      fsyncSync(copy);
    } finally {
      closeSync(copy);
    }
    renameSync(draft, this.path(name));
    return name;
  }
}

const nameOf = (program: string): string =>
  createHash('sha256').update(readFileSync(program)).digest('hex').slice(0, digestChars);
