import { readFile } from 'node:fs/promises';
import { CoppiceError } from '@coppice/protocol';
import { z } from 'zod';
import { runProgram } from '../../programs/run-program.ts';
import type { CredentialSource, Credentials } from './credentials.ts';

export interface DockerConfigFileOptions {
  /** What `docker login` writes; where there is none, it knows no login. */
  readonly file: string;
  /** For the programs that it names, which keep secrets in places of their user: HOME, PATH and the like. */
  readonly env: Readonly<Record<string, string>>;
}

const entrySchema = z.object({
  auth: z.string().optional(),
  username: z.string().optional(),
  password: z.string().optional(),
  identitytoken: z.string().optional(),
});
const configSchema = z.object({
  auths: z.record(z.string(), entrySchema).optional(),
  credHelpers: z.record(z.string(), z.string()).optional(),
  credsStore: z.string().optional(),
});
const answerSchema = z.object({ Username: z.string(), Secret: z.string() });

const hubKey = 'https://index.docker.io/v1/';
const helperPattern = /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/;
/** The name that helpers give to what is no password. */
const tokenName = '<token>';

/** The logins that docker keeps: in the file itself, or with a helper program that it names. */
export class DockerConfigFile implements CredentialSource {
  readonly #options: DockerConfigFileOptions;

  constructor(options: DockerConfigFileOptions) {
    this.#options = options;
  }

  async find(registry: string, signal?: AbortSignal): Promise<Credentials | undefined> {
    const config = await this.#read();
    if (config === undefined) return undefined;
    const key = registry === 'docker.io' ? hubKey : registry;
    const own = entryFor(config.credHelpers, registry);
    const helper = own ?? config.credsStore;
    if (helper !== undefined && helper !== '') {
      const found = await this.#askHelper(helper, key, signal);
      if (found !== undefined || own !== undefined) return found;
    }
    const entry = entryFor(config.auths, registry);
    return entry === undefined ? undefined : readEntry(entry, this.#options.file);
  }

  async #read(): Promise<z.infer<typeof configSchema> | undefined> {
    const { file } = this.#options;
    let text: string;
    try {
      text = await readFile(file, 'utf8');
    } catch (error) {
      if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return undefined;
      throw error;
    }
    try {
      return configSchema.parse(JSON.parse(text));
    } catch (cause) {
      throw broken(file, cause);
    }
  }

  async #askHelper(
    name: string,
    key: string,
    signal: AbortSignal | undefined,
  ): Promise<Credentials | undefined> {
    const { file, env } = this.#options;
    if (!helperPattern.test(name)) throw broken(file);
    const program = `docker-credential-${name}`;
    const { exitCode, stdout } = await runProgram([program, 'get'], {
      input: key,
      env,
      accept: [1],
      ...(signal === undefined ? {} : { signal }),
    });
    // It says on stdout that it knows nothing; whatever else it says there must not reach a log.
    if (exitCode !== 0) {
      if (/not found|no credentials/i.test(stdout)) return undefined;
      throw new CoppiceError('unavailable', `${program} gives no login for ${key}`, {
        hint: `Ask it yourself: echo ${key} | ${program} get`,
      });
    }
    const answer = answerSchema.safeParse(parseJson(stdout));
    if (!answer.success)
      throw new CoppiceError('unavailable', `${program} answers with something that is no login`);
    const { Username: username, Secret: password } = answer.data;
    if (username === tokenName) return { kind: 'identity-token', token: password };
    return { kind: 'password', username, password };
  }
}

/** Keys are hosts, or addresses as older versions wrote them. */
function entryFor<T>(entries: Readonly<Record<string, T>> | undefined, registry: string): T | undefined {
  const hostOf = (key: string): string => key.replace(/^https?:\/\//, '').replace(/\/.*$/, '');
  const wanted =
    registry === 'docker.io' ? ['index.docker.io', 'docker.io', 'registry-1.docker.io'] : [registry];
  return Object.entries(entries ?? {}).find(([key]) => wanted.includes(hostOf(key)))?.[1];
}

function readEntry(entry: z.infer<typeof entrySchema>, file: string): Credentials | undefined {
  if (entry.identitytoken !== undefined && entry.identitytoken !== '')
    return { kind: 'identity-token', token: entry.identitytoken };
  if (entry.username !== undefined && entry.password !== undefined)
    return { kind: 'password', username: entry.username, password: entry.password };
  // A helper that keeps the secret leaves an empty entry behind.
  if (entry.auth === undefined || entry.auth === '') return undefined;
  const text = Buffer.from(entry.auth, 'base64').toString('utf8');
  const colon = text.indexOf(':');
  if (colon < 1) throw broken(file);
  return {
    kind: 'password',
    username: text.slice(0, colon),
    password: text.slice(colon + 1).replace(/\0+$/, ''),
  };
}

const parseJson = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
};

const broken = (file: string, cause?: unknown): CoppiceError =>
  new CoppiceError('invalid_argument', `${file} holds logins in a form that is not docker's`, {
    hint: 'Correct the file, or log in again with `docker login` or `coppice images login`.',
    // What a parser says of it would quote it.
    ...(cause instanceof z.ZodError ? { cause } : {}),
  });
