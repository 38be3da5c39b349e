import type { Exit, Job, JobLogBody } from '@coppice/protocol';
import { bytesOfBase64, bytesOfText } from './connection/bytes.ts';
import type { Caller, CallOptions } from './connection/caller.ts';
import type { CommandLine, JobOptions } from './options.ts';
import type { OutputChunk } from './process-stream.ts';

interface LogOptions extends CallOptions {
  readonly cursor?: number;
  readonly max_bytes?: number;
  readonly wait_ms?: number;
}

const followWaitMs = 30_000;

/** Background jobs of one sandbox: they go on when nobody looks. */
export class Jobs {
  readonly #caller: Caller;
  readonly #sandbox: string;

  constructor(caller: Caller, sandbox: string) {
    this.#caller = caller;
    this.#sandbox = sandbox;
  }

  async start(command: CommandLine, { signal, ...rest }: JobOptions = {}): Promise<Job & JobActions> {
    const body = { command, ...rest };
    return this.#act(
      await this.#caller.call('startJob', { params: { sandbox: this.#sandbox }, body, signal }),
    );
  }

  async list({ signal }: CallOptions = {}): Promise<(Job & JobActions)[]> {
    const { items } = await this.#caller.call('listJobs', { params: { sandbox: this.#sandbox }, signal });
    return items.map((job) => this.#act(job));
  }

  async get(job: number, { signal }: CallOptions = {}): Promise<Job & JobActions> {
    return this.#act(await this.#caller.call('getJob', { params: { sandbox: this.#sandbox, job }, signal }));
  }

  #act(job: Job): Job & JobActions {
    return Object.assign(new JobActions(this, job.id), job);
  }

  /** What was written after the cursor; with `wait_ms` it waits that long for something new. */
  read(job: number, { signal, ...query }: LogOptions = {}): Promise<JobLogBody> {
    return this.#caller.call('readJob', { params: { sandbox: this.#sandbox, job }, query, signal });
  }

  /** The log from a cursor on, until the job ends. */
  async *follow(
    job: number,
    { cursor: from = 0, signal }: { readonly cursor?: number } & CallOptions = {},
  ): AsyncGenerator<OutputChunk, Exit | null, undefined> {
    let cursor = from;
    for (;;) {
      const log = await this.read(job, { cursor, wait_ms: followWaitMs, signal });
      yield* chunksOf(log);
      if (!log.running && log.cursor === cursor) return log.exit;
      cursor = log.cursor;
    }
  }

  /** What the log holds now, from a cursor on. */
  async *history(
    job: number,
    { cursor: from = 0, signal }: { readonly cursor?: number } & CallOptions = {},
  ): AsyncGenerator<OutputChunk, void, undefined> {
    for (let cursor = from; ; ) {
      const log = await this.read(job, { cursor, signal });
      yield* chunksOf(log);
      if (log.cursor === cursor) return;
      cursor = log.cursor;
    }
  }

  /** How it ended, once it has. */
  async wait(job: number, options: CallOptions = {}): Promise<Exit> {
    let { log_bytes: cursor } = await this.get(job, options);
    for (;;) {
      const log = await this.read(job, { cursor, wait_ms: followWaitMs, max_bytes: 1, ...options });
      if (log.exit !== null) return log.exit;
      cursor = log.cursor;
    }
  }

  async kill(job: number, signalNumber = 15, { signal }: CallOptions = {}): Promise<void> {
    const params = { sandbox: this.#sandbox, job };
    await this.#caller.call('signalJob', { params, body: { signal: signalNumber }, signal });
  }
}

/** What can be done with a job that a call answered with. */
export class JobActions {
  readonly #jobs: Jobs;
  readonly #job: number;

  constructor(jobs: Jobs, job: number) {
    this.#jobs = jobs;
    this.#job = job;
  }

  /** The log from a cursor on, until the job ends. */
  follow(options: { readonly cursor?: number } & CallOptions = {}): ReturnType<Jobs['follow']> {
    return this.#jobs.follow(this.#job, options);
  }

  /** How it ended, once it has. */
  wait(options: CallOptions = {}): Promise<Exit> {
    return this.#jobs.wait(this.#job, options);
  }

  kill(signalNumber = 15, options: CallOptions = {}): Promise<void> {
    return this.#jobs.kill(this.#job, signalNumber, options);
  }
}

/** The bytes of a page of a log: text that is not UTF-8 comes with its bytes beside it. */
const chunksOf = (log: JobLogBody): OutputChunk[] =>
  log.entries.map(({ stream, text, base64 }) => ({
    stream,
    data: base64 === null ? bytesOfText(text) : bytesOfBase64(base64),
  }));
