import {
  CoppiceError,
  type Job,
  type JobLogBody,
  type jobLogQuery,
  type startJobSchema,
} from '@coppice/protocol';
import type { JobInfo } from '@coppice/runtime';
import type { z } from 'zod';
import { type GuestAccess, withGuest } from './guest-access.ts';
import { guestTime } from './guest-time.ts';
import { outputText } from './output-text.ts';
import { toExit, toProcessRequest } from './process-request.ts';

const toJob = (job: JobInfo): Job => ({
  id: job.id,
  pid: job.pid,
  command: [...job.argv],
  started_at: guestTime(job.startedAtMs),
  running: job.running,
  exit: job.exit === null ? null : toExit(job.exit),
  log_bytes: job.logBytes,
  log_start: job.logStart,
});

/** Background jobs: they outlive the caller and the daemon. */
export class JobService {
  readonly #guests: GuestAccess;

  constructor(guests: GuestAccess) {
    this.#guests = guests;
  }

  async start(ref: string, input: z.output<typeof startJobSchema>): Promise<Job> {
    return withGuest(this.#guests, ref, async (lease) =>
      toJob(await lease.guest.startJob({ ...toProcessRequest(lease, input), keepAwake: input.keep_awake })),
    );
  }

  async list(ref: string): Promise<Job[]> {
    return withGuest(this.#guests, ref, async ({ guest }) => (await guest.listJobs()).map(toJob));
  }

  async get(ref: string, id: number): Promise<Job> {
    const job = (await this.list(ref)).find((candidate) => candidate.id === id);
    if (job === undefined) throw noJob(ref, id);
    return job;
  }

  async readLog(ref: string, id: number, query: z.output<typeof jobLogQuery>): Promise<JobLogBody> {
    return withGuest(this.#guests, ref, async ({ guest }) => {
      const log = await guest
        .readJob(id, {
          cursor: query.cursor,
          maxBytes: query.max_bytes,
          waitMs: query.wait_ms,
        })
        .catch(named(ref, id));
      return {
        entries: log.chunks.map(({ stream, data }) => ({ stream, ...outputText(data) })),
        cursor: log.cursor,
        dropped_bytes: log.droppedBytes,
        running: log.running,
        exit: log.exit === null ? null : toExit(log.exit),
      };
    });
  }

  async signal(ref: string, id: number, signal: number): Promise<void> {
    await withGuest(this.#guests, ref, ({ guest }) => guest.signalJob(id, signal).catch(named(ref, id)));
  }
}

const noJob = (ref: string, id: number, cause?: unknown): CoppiceError =>
  new CoppiceError('not_found', `sandbox ${ref} has no job ${id}`, {
    hint: 'List its jobs with `coppice jobs`.',
    cause,
  });

/** The agent knows neither what its sandbox is called nor how jobs are listed. */
const named =
  (ref: string, id: number) =>
  (error: unknown): never => {
    throw error instanceof CoppiceError && error.code === 'not_found' ? noJob(ref, id, error) : error;
  };
