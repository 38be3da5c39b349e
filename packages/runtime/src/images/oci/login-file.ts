import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { CoppiceError } from '@coppice/protocol';
import { z } from 'zod';
import type { CredentialSource, Credentials } from './credentials.ts';

const fileSchema = z.record(z.string(), z.strictObject({ username: z.string(), password: z.string() }));
type Logins = z.infer<typeof fileSchema>;

/** The logins that `images login` keeps: one file that only its owner may read. */
export class LoginFile implements CredentialSource {
  readonly #path: string;
  #writing: Promise<unknown> = Promise.resolve();

  constructor(path: string) {
    this.#path = path;
  }

  async find(registry: string): Promise<Credentials | undefined> {
    const login = (await this.#read())[registry];
    return login === undefined ? undefined : { kind: 'password', ...login };
  }

  /** Names of registries and users, no secrets. */
  async list(): Promise<{ registry: string; username: string }[]> {
    return Object.entries(await this.#read()).map(([registry, { username }]) => ({ registry, username }));
  }

  async set(registry: string, username: string, password: string): Promise<void> {
    await this.#change((logins) => ({ ...logins, [registry]: { username, password } }));
  }

  /** False where there was none. */
  async remove(registry: string): Promise<boolean> {
    let found = false;
    await this.#change(({ [registry]: known, ...others }) => {
      found = known !== undefined;
      return others;
    });
    return found;
  }

  async #change(change: (logins: Logins) => Logins): Promise<void> {
    const work = this.#writing.then(async () => {
      const fresh = `${this.#path}.new`;
      const text = `${JSON.stringify(change(await this.#read()), null, 2)}\n`;
      await rm(fresh, { force: true });
      await writeFile(fresh, text, { mode: 0o600, flag: 'wx', flush: true });
      await rename(fresh, this.#path);
    });
    this.#writing = work.catch(() => {});
    await work;
  }

  async #read(): Promise<Logins> {
    let text: string;
    try {
      text = await readFile(this.#path, 'utf8');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return {};
      throw error;
    }
    try {
      return fileSchema.parse(JSON.parse(text));
    } catch {
      throw new CoppiceError('corrupt', `${this.#path} does not hold logins`, {
        hint: 'Remove the file, then log in again with `coppice images login`.',
      });
    }
  }
}
