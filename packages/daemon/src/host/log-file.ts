import { closeSync, fstatSync, mkdirSync, openSync, renameSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';

/**
 * A log that never takes more than twice its size: when it is full it takes the place of the one before it. Written at
 * once, so that the last line before a crash is there.
 */
export class LogFile implements Disposable {
  readonly #path: string;
  readonly #maxBytes: number;
  #file: number;
  #bytes: number;
  #lostLines = 0;

  constructor(path: string, maxBytes: number) {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    this.#path = path;
    this.#maxBytes = maxBytes;
    this.#file = openPrivate(path);
    this.#bytes = fstatSync(this.#file).size;
  }

  /** A full disk must not end who writes: the lines that it took, the last in part, are counted and said once there is room. */
  write(line: string): void {
    const lost =
      this.#lostLines === 0 ? '' : `\n${JSON.stringify({ level: 40, lost_lines: this.#lostLines })}\n`;
    try {
      this.#append(Buffer.from(lost + line));
      this.#lostLines = 0;
    } catch (error) {
      if (!['ENOSPC', 'EDQUOT'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
      this.#lostLines += 1;
    }
  }

  [Symbol.dispose](): void {
    closeSync(this.#file);
  }

  #append(bytes: Buffer): void {
    if (this.#bytes > 0 && this.#bytes + bytes.length > this.#maxBytes) this.#turnOver();
    for (let written = 0; written < bytes.length; ) {
      const more = writeSync(this.#file, bytes, written);
      written += more;
      this.#bytes += more;
    }
  }

  #turnOver(): void {
    const file = openPrivate(`${this.#path}.new`);
    renameSync(this.#path, `${this.#path}.1`);
    renameSync(`${this.#path}.new`, this.#path);
    closeSync(this.#file);
    this.#file = file;
    this.#bytes = fstatSync(file).size;
  }
}

const openPrivate = (path: string): number => openSync(path, 'a', 0o600);
