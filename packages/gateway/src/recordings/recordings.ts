import { mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';
import { z } from 'zod';
import type { DialectName } from '../models/dialect.ts';
import { maskSecrets } from './mask-secrets.ts';
import { type Recording, recordingSchema } from './recording.ts';
import { requestDigest } from './request-digest.ts';

export interface RecordingOptions {
  readonly directory: string;
  /** `record` keeps answers of upstreams; `replay` plays them back and asks no upstream. */
  readonly mode: 'record' | 'replay';
  /** `exact` answers a request with what the same request got; `order` answers the nth with the nth, whatever it asks. */
  readonly match?: 'exact' | 'order';
  /** Whether chunks come when they came, or all at once. */
  readonly timing?: 'recorded' | 'at-once';
  /** Values that no recording may hold, besides the keys of upstreams. */
  readonly secrets?: () => Iterable<string>;
}

/** A longer answer is not recorded. */
const maxAnswerBytes = 32 * 1024 * 1024;

const filePattern = /^(\d{6,})-([0-9a-f]{16})\.json$/;

/** Gathers one answer; nothing is on disk until it is whole. */
export interface Recorder {
  chunk(bytes: Buffer): void;
  /** The answer ended as it should. `secrets` are masked besides those that are known anyway. */
  save(answer: {
    readonly status: number;
    readonly contentType: string;
    readonly secrets: Iterable<string>;
  }): void;
}

/** Answers of models in a directory, one file each, in the order in which they were asked for. */
export class Recordings {
  readonly #options: RecordingOptions;
  readonly #files: { readonly name: string; readonly digest: string }[];
  readonly #played = new Map<string, number>();
  #next: number;

  constructor(options: RecordingOptions) {
    this.#options = options;
    if (options.mode === 'record') mkdirSync(options.directory, { recursive: true, mode: 0o700 });
    const found = readdirSync(options.directory).flatMap((name) => {
      const match = filePattern.exec(name);
      return match === null ? [] : [{ name, number: Number(match[1]), digest: match[2]! }];
    });
    this.#files = found.toSorted((one, other) => one.number - other.number);
    this.#next = Math.max(0, ...found.map((file) => file.number)) + 1;
  }

  get isReplay(): boolean {
    return this.#options.mode === 'replay';
  }

  /** Undefined while answers are played back. */
  record(dialect: DialectName, model: string, path: string, body: Buffer): Recorder | undefined {
    if (this.isReplay) return undefined;
    const began = performance.now();
    const digest = requestDigest(dialect, path, body);
    const number = this.#next;
    this.#next += 1;
    const chunks: { afterMs: number; bytes: Buffer }[] = [];
    let size = 0;
    return {
      chunk: (bytes) => {
        size += bytes.length;
        if (size > maxAnswerBytes) chunks.length = 0;
        else chunks.push({ afterMs: Math.round(performance.now() - began), bytes });
      },
      save: ({ status, contentType, secrets }) => {
        if (size > maxAnswerBytes) return;
        const known = [...secrets, ...(this.#options.secrets?.() ?? [])];
        const masked = maskSecrets(Buffer.concat(chunks.map((chunk) => chunk.bytes)), known);
        let at = 0;
        const kept = chunks.map(({ afterMs, bytes }) => {
          at += bytes.length;
          return { afterMs, base64: masked.subarray(at - bytes.length, at).toString('base64') };
        });
        this.#write(number, { format: 1, dialect, model, digest, status, contentType, chunks: kept });
      },
    };
  }

  /** The answer to a request, or undefined where nothing was recorded for it. */
  play(dialect: DialectName, path: string, body: Buffer): PlayedAnswer | undefined {
    const digest = requestDigest(dialect, path, body).slice(0, 16);
    const isExact = (this.#options.match ?? 'exact') === 'exact';
    const candidates = isExact ? this.#files.filter((file) => file.digest === digest) : this.#files;
    const key = isExact ? digest : '';
    const turn = this.#played.get(key) ?? 0;
    // A request that is asked once more often than it was recorded gets the last answer again.
    const file = candidates[isExact ? Math.min(turn, candidates.length - 1) : turn];
    if (file === undefined) return undefined;
    const recording = this.#read(file.name);
    if (recording.dialect !== dialect) return undefined;
    this.#played.set(key, turn + 1);
    return {
      name: file.name,
      status: recording.status,
      contentType: recording.contentType,
      body: Readable.from(this.#bytes(recording), { objectMode: false }),
    };
  }

  async *#bytes(recording: Recording): AsyncGenerator<Buffer> {
    const began = performance.now();
    for (const chunk of recording.chunks) {
      const waitMs = chunk.afterMs - (performance.now() - began);
      if (this.#options.timing === 'recorded' && waitMs > 0) await delay(waitMs);
      yield Buffer.from(chunk.base64, 'base64');
    }
  }

  #write(number: number, recording: Recording): void {
    const name = `${String(number).padStart(6, '0')}-${recording.digest.slice(0, 16)}.json`;
    const path = join(this.#options.directory, name);
    writeFileSync(`${path}.part`, JSON.stringify(recording), { mode: 0o600 });
    renameSync(`${path}.part`, path);
  }

  #read(name: string): Recording {
    const path = join(this.#options.directory, name);
    let content: unknown;
    try {
      content = JSON.parse(readFileSync(path, 'utf8'));
    } catch (cause) {
      throw new CoppiceError('corrupt', `the recording ${name} cannot be read`, { cause });
    }
    const parsed = recordingSchema.safeParse(content);
    if (!parsed.success)
      throw new CoppiceError('corrupt', `${name} is no recording: ${z.prettifyError(parsed.error)}`);
    return parsed.data;
  }
}

export interface PlayedAnswer {
  /** The file that it comes from. */
  readonly name: string;
  readonly status: number;
  readonly contentType: string;
  readonly body: Readable;
}
