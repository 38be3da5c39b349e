/** What a file may hold: one text where the daemon said so, several while nobody knows; null: not there. */
type Possible = ReadonlySet<string | null>;

/**
 * What a client knows of the files of one sandbox. An acknowledged write leaves one possibility; a call whose answer
 * was lost with the daemon leaves the old and the new.
 */
export class KnownFiles {
  readonly #files: Map<string, Possible>;

  constructor(files: ReadonlyMap<string, Possible> = new Map()) {
    this.#files = new Map(files);
  }

  get paths(): string[] {
    return [...this.#files.keys()];
  }

  copy(): KnownFiles {
    return new KnownFiles(this.#files);
  }

  wrote(path: string, text: string): void {
    this.#files.set(path, new Set([text]));
  }

  mayHaveWritten(path: string, text: string): void {
    this.#files.set(path, new Set([...this.#of(path), text]));
  }

  /** All of it became what the other is. */
  became(other: KnownFiles): void {
    this.#files.clear();
    for (const [path, possible] of other.#files) this.#files.set(path, possible);
  }

  mayHaveBecome(other: KnownFiles): void {
    for (const path of new Set([...this.paths, ...other.paths]))
      this.#files.set(path, new Set([...this.#of(path), ...other.#of(path)]));
  }

  /** Throws when what was seen cannot be. It settles nothing: what a dead daemon had passed on may still arrive. */
  check(path: string, text: string | null, where: string): void {
    const possible = this.#of(path);
    if (possible.has(text)) return;
    const expected = [...possible].map((one) => JSON.stringify(one)).join(' or ');
    throw new Error(`${where}: ${path} holds ${JSON.stringify(text)}, but was acknowledged as ${expected}`);
  }

  #of(path: string): Possible {
    return this.#files.get(path) ?? new Set([null]);
  }
}
