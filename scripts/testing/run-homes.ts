import { type FSWatcher, readdirSync, realpathSync, watch } from 'node:fs';
import { join } from 'node:path';
import { homeKeyOfPath } from '../../packages/testkit/src/home-key.ts';

/** How often the directories of tests are looked into for homes one level down. */
const sweepEveryMs = 200;

/**
 * The keys of all homes that a test run made, also of those whose directories are gone again. Any directory in the
 * run's temporary directory, or in a directory in that, may be a home: the kernel tells of the former, so none is
 * missed; the latter are looked for all the time, and a home is there for longer than it takes to look twice.
 */
export class RunHomes {
  readonly #temporary: string;
  readonly #keys = new Set<string>();
  readonly #watcher: FSWatcher;
  readonly #timer: NodeJS.Timeout;

  constructor(temporary: string) {
    this.#temporary = realpathSync(temporary);
    this.#watcher = watch(this.#temporary, (_, name) => {
      if (name !== null) this.#note(name);
    });
    this.#timer = setInterval(() => this.sweep(), sweepEveryMs);
    this.sweep();
  }

  has(key: string): boolean {
    return this.#keys.has(key);
  }

  /** Notes what is there now. */
  sweep(): void {
    for (const name of namesIn(this.#temporary)) this.#note(name);
  }

  close(): void {
    clearInterval(this.#timer);
    this.#watcher.close();
  }

  #note(name: string): void {
    const directory = join(this.#temporary, name);
    this.#keys.add(homeKeyOfPath(directory));
    for (const below of namesIn(directory)) this.#keys.add(homeKeyOfPath(join(directory, below)));
  }
}

/** Empty for what is a file, or is gone again. */
const namesIn = (directory: string): string[] => {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
};
