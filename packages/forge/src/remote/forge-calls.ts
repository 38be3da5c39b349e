import { setTimeout as pause } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';
import { z } from 'zod';

export interface ForgeRequest {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'PUT' | 'DELETE';
  /** Below the place of the repository's API; it begins with `/` or is empty. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: object;
  readonly signal?: AbortSignal | undefined;
}

export interface ForgeAnswer {
  readonly status: number;
  /** By their names in small letters. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: unknown;
}

/** Sends one request with the login of the repository, once. Throws `unavailable` where no answer came. */
export type ForgeHttp = (request: ForgeRequest) => Promise<ForgeAnswer>;

export interface ForgeCallsParts {
  readonly http: ForgeHttp;
  /** Who it is, for people: `github owner/name`. */
  readonly title: string;
  readonly now?: () => number;
  readonly sleep?: (ms: number, signal: AbortSignal | undefined) => Promise<unknown>;
}

const tries = 3;
/** A forge that asks for more patience is not waited for. */
const longestWaitMs = 60_000;
const mostPages = 20;
const pageSize = 100;

/**
 * Calls of a forge elsewhere. What only reads is repeated after a failure; a write is repeated only where the forge refused it unheard,
 * for too many calls. Everything else is for the caller, who looks first whether it has happened.
 */
export class ForgeCalls {
  readonly #parts: ForgeCallsParts;
  readonly #now: () => number;
  readonly #sleep: NonNullable<ForgeCallsParts['sleep']>;

  constructor(parts: ForgeCallsParts) {
    this.#parts = parts;
    this.#now = parts.now ?? Date.now;
    this.#sleep =
      parts.sleep ?? ((ms, signal) => pause(ms, undefined, signal === undefined ? {} : { signal }));
  }

  /** What was asked for, in its shape. */
  async get<T>(
    schema: z.ZodType<T>,
    path: string,
    query: Record<string, string> = {},
    signal?: AbortSignal,
  ): Promise<T> {
    return this.shaped(schema, await this.send({ method: 'GET', path, query, signal }));
  }

  async defaultBranch(signal?: AbortSignal): Promise<string> {
    return (await this.get(z.object({ default_branch: z.string() }), '', {}, signal)).default_branch;
  }

  /** What was asked for, or undefined where there is none. */
  async find<T>(schema: z.ZodType<T>, path: string, signal?: AbortSignal): Promise<T | undefined> {
    const answer = await this.send({ method: 'GET', path, signal }, [404]);
    return answer.status === 404 ? undefined : this.shaped(schema, answer);
  }

  /** All pages of a list. */
  async list<T>(
    schema: z.ZodType<T[]>,
    path: string,
    {
      query = {},
      size = 'per_page',
      signal,
    }: { query?: Record<string, string>; size?: string; signal?: AbortSignal | undefined } = {},
  ): Promise<T[]> {
    const all: T[] = [];
    for (let page = 1; page <= mostPages; page += 1) {
      const part = await this.get(
        schema,
        path,
        { ...query, [size]: String(pageSize), page: String(page) },
        signal,
      );
      all.push(...part);
      if (part.length === 0 || (part.length < pageSize && size === 'per_page')) return all;
    }
    throw new CoppiceError('too_large', `${this.#parts.title} lists more than ${all.length} of ${path}`);
  }

  shaped<T>(schema: z.ZodType<T>, { body }: ForgeAnswer): T {
    const parsed = schema.safeParse(body);
    if (parsed.success) return parsed.data;
    const { path, message } = parsed.error.issues[0]!;
    throw new CoppiceError(
      'corrupt',
      `${this.#parts.title} answered what makes no sense: ${path.join('.')}: ${message}`,
      {
        hint: 'Is the URL that of the API? Try: coppice forge doctor NAME',
      },
    );
  }

  /** An answer of success, or with one of these statuses; other ones are errors. */
  async send(request: ForgeRequest, accepted: readonly number[] = []): Promise<ForgeAnswer> {
    const mayRepeat = request.method === 'GET';
    for (let n = 1; ; n += 1) {
      let answer: ForgeAnswer;
      try {
        answer = await this.#parts.http(request);
      } catch (error) {
        if (!mayRepeat || n === tries || !(error instanceof CoppiceError) || error.code !== 'unavailable')
          throw error;
        await this.#sleep(250 * 2 ** n, request.signal);
        continue;
      }
      if ((answer.status >= 200 && answer.status < 300) || accepted.includes(answer.status)) return answer;
      const waitMs = this.#waitOf(answer);
      if (waitMs !== undefined) {
        if (n === tries || waitMs > longestWaitMs) throw this.#tooMany(waitMs);
        await this.#sleep(waitMs, request.signal);
      } else if (answer.status >= 500 && mayRepeat && n < tries)
        await this.#sleep(250 * 2 ** n, request.signal);
      else throw this.refusal(request, answer);
    }
  }

  /** What the forge said, as an error. */
  refusal({ method, path }: Pick<ForgeRequest, 'method' | 'path'>, answer: ForgeAnswer): CoppiceError {
    const { title } = this.#parts;
    const said = `${title} answered ${answer.status} to ${method} ${path === '' ? '/' : path}: ${messageOf(answer)}`;
    switch (answer.status) {
      case 401:
        return new CoppiceError('unauthenticated', said, {
          hint: 'The token is wrong or has expired. Register the repository again with another one.',
        });
      case 403:
        return new CoppiceError('forbidden', said, {
          hint: 'The token lacks a permission. Try: coppice forge doctor NAME',
        });
      case 404:
        return new CoppiceError('not_found', said, {
          hint: 'Forges also answer so where a token may not see the repository.',
        });
      case 301:
      case 302:
      case 307:
      case 308:
        return new CoppiceError('wrong_state', said, {
          hint: 'The repository or its forge has moved. Register it under its new name.',
        });
      default:
        return answer.status >= 500
          ? new CoppiceError('unavailable', said, { hint: 'Try again in a moment.' })
          : new CoppiceError('wrong_state', said);
    }
  }

  /** How long to wait where the forge says that there were too many calls. */
  #waitOf({ status, headers }: ForgeAnswer): number | undefined {
    const after = headers['retry-after'];
    const isUsedUp = headers['x-ratelimit-remaining'] === '0' || headers['ratelimit-remaining'] === '0';
    if (status !== 429 && !((status === 403 || status === 503) && (after !== undefined || isUsedUp)))
      return undefined;
    if (after !== undefined) {
      const ms = /^\d{1,9}$/.test(after.trim()) ? Number(after) * 1000 : Date.parse(after) - this.#now();
      if (Number.isFinite(ms)) return Math.max(0, ms);
    }
    const reset = Number(headers['x-ratelimit-reset'] ?? headers['ratelimit-reset'] ?? Number.NaN);
    return Number.isFinite(reset) ? Math.max(0, reset * 1000 - this.#now()) : 1000;
  }

  #tooMany(waitMs: number): CoppiceError {
    const seconds = Math.ceil(waitMs / 1000);
    return new CoppiceError('rate_limited', `${this.#parts.title} takes no more calls for ${seconds} s`, {
      hint: `Try again in ${seconds} s.`,
      details: { retry_after_s: seconds },
    });
  }
}

/** What a forge says in its answer, in one line. */
export function messageOf({ body }: ForgeAnswer): string {
  const of = (value: unknown): string[] => {
    if (typeof value === 'string') return [value];
    if (Array.isArray(value)) return value.flatMap(of);
    if (typeof value !== 'object' || value === null) return [];
    const { message, error, errors } = value as Record<string, unknown>;
    return [message, error, errors].flatMap(of);
  };
  const text = of(body)
    .join('; ')
    .replace(/[^\x20-\x7e]+/g, ' ');
  return text === '' ? 'nothing more' : text.slice(0, 500);
}

/** As it stands in a path: slashes stay. */
export const inPath = (name: string): string => name.split('/').map(encodeURIComponent).join('/');
