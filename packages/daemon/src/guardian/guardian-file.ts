import { readFileSync, statSync } from 'node:fs';
import { type GuardianFile, guardianFileSchema } from '@coppice/protocol';

const empty: GuardianFile = { rules: [] };
const mostBytes = 1_048_576;

/** `guardian.json` of the home, read again when it changes. While it is wrong, the last good rules hold and the trouble is said. */
export class RulesFile {
  readonly #path: string;
  #mark = '';
  #content = empty;
  #trouble: string | null = null;

  constructor(path: string) {
    this.#path = path;
  }

  get trouble(): string | null {
    this.read();
    return this.#trouble;
  }

  read(): GuardianFile {
    const mark = this.#markNow();
    if (mark === this.#mark) return this.#content;
    this.#mark = mark;
    this.#trouble = null;
    if (mark === 'none') {
      this.#content = empty;
      return this.#content;
    }
    try {
      if (statSync(this.#path).size > mostBytes) throw new Error(`it is larger than ${mostBytes} bytes`);
      const parsed = guardianFileSchema.safeParse(JSON.parse(readFileSync(this.#path, 'utf8')));
      if (parsed.success) this.#content = parsed.data;
      else {
        const [issue] = parsed.error.issues;
        this.#trouble = `${this.#path}: ${issue?.path.join('.')} ${issue?.message}`;
      }
    } catch (error) {
      this.#trouble = `${this.#path}: ${(error as Error).message}`;
    }
    return this.#content;
  }

  #markNow(): string {
    const found = statSync(this.#path, { throwIfNoEntry: false, bigint: true });
    return found === undefined ? 'none' : `${found.mtimeNs} ${found.size} ${found.ino}`;
  }
}
