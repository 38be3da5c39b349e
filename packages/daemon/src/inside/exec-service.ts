import { CoppiceError, type ErrorCode, type ExecResult, type Exit, type execSchema } from '@coppice/protocol';
import { type ExitStatus, GatheredBytes, type GuestProcess, type StreamedChunk } from '@coppice/runtime';
import type { z } from 'zod';
import type { GuestAccess, GuestLease } from './guest-access.ts';
import type { LimitWatch } from './limit-watch.ts';
import { outputText, unfinishedTail } from './output-text.ts';
import { type CommandInput, toExit, toProcessRequest } from './process-request.ts';

type ExecInput = z.output<typeof execSchema>;

/** A process that streams; closing it kills the process group. */
export interface ExecStream {
  readonly pid: number;
  readonly output: AsyncIterable<StreamedChunk>;
  readonly exit: Promise<Exit>;
  writeStdin(data: Uint8Array): Promise<void>;
  endStdin(): Promise<void>;
  signal(signal: number): Promise<void>;
  close(): void;
}

/** Keeps the first bytes of a stream and counts the rest. */
class CappedOutput {
  readonly #capBytes: number;
  readonly #kept = new GatheredBytes();
  #seenBytes = 0;

  constructor(capBytes: number) {
    this.#capBytes = capBytes;
  }

  add(data: Buffer): void {
    this.#seenBytes += data.length;
    const room = this.#capBytes - this.#kept.length;
    if (room > 0) this.#kept.add(data.length <= room ? data : data.subarray(0, room));
  }

  finish(): { bytes: Buffer; cutBytes: number } {
    const { bytes } = this.#kept;
    // A character that the cap split would read as binary.
    const whole =
      this.#seenBytes > bytes.length ? bytes.subarray(0, bytes.length - unfinishedTail(bytes)) : bytes;
    return { bytes: whole, cutBytes: this.#seenBytes - whole.length };
  }
}

const agentIsSilent: ReadonlySet<ErrorCode> = new Set(['timeout', 'unavailable']);

const stdinOf = (input: ExecInput): Buffer | undefined => {
  if (input.stdin !== undefined && input.stdin_base64 !== undefined) {
    throw new CoppiceError('invalid_argument', 'give stdin or stdin_base64, not both');
  }
  if (input.stdin !== undefined) return Buffer.from(input.stdin);
  return input.stdin_base64 === undefined ? undefined : Buffer.from(input.stdin_base64, 'base64');
};

/** Foreground commands. */
export class ExecService {
  readonly #guests: GuestAccess;

  constructor(guests: GuestAccess) {
    this.#guests = guests;
  }

  /** Runs to the end and keeps the output up to the cap. The process group is killed when the caller goes away. */
  async run(ref: string, input: ExecInput, signal?: AbortSignal): Promise<ExecResult> {
    const stdin = stdinOf(input);
    const startedMs = performance.now();
    const lease = await this.#guests.acquire(ref);
    try {
      // The caller may have gone while the sandbox was woken: then nothing is started.
      signal?.throwIfAborted();
      const emptyInput = stdin === undefined || stdin.length === 0;
      const watch = lease.watchLimits();
      const process = await lease.guest.exec({ ...toProcessRequest(lease, input), emptyInput });
      return await this.#collect(process, watch, input.max_output_bytes, stdin, startedMs, signal);
    } finally {
      lease.release();
    }
  }

  async #collect(
    process: GuestProcess,
    watch: LimitWatch,
    capBytes: number,
    stdin: Buffer | undefined,
    startedMs: number,
    signal: AbortSignal | undefined,
  ): Promise<ExecResult> {
    const abort = () => process.close();
    signal?.addEventListener('abort', abort, { once: true });
    if (signal?.aborted) abort();
    try {
      const feeding = this.#feed(process, stdin);
      const stdout = new CappedOutput(capBytes);
      const stderr = new CappedOutput(capBytes);
      const exit = await this.#follow(process, watch, stdout, stderr);
      await feeding;
      signal?.throwIfAborted();
      const out = stdout.finish();
      const err = stderr.finish();
      watch.hear(err.bytes);
      const outText = outputText(out.bytes);
      const errText = outputText(err.bytes);
      return {
        ...watch.settle(toExit(exit)),
        stdout: outText.text,
        stderr: errText.text,
        binary: outText.base64 !== null || errText.base64 !== null,
        stdout_base64: outText.base64,
        stderr_base64: errText.base64,
        stdout_cut_bytes: out.cutBytes,
        stderr_cut_bytes: err.cutBytes,
        duration_ms: Math.round((performance.now() - startedMs) * 1000) / 1000,
      };
    } finally {
      signal?.removeEventListener('abort', abort);
      process.close();
    }
  }

  /** What came before the agent was given up is of use to the caller. */
  async #follow(
    process: GuestProcess,
    watch: LimitWatch,
    stdout: CappedOutput,
    stderr: CappedOutput,
  ): Promise<ExitStatus> {
    try {
      for await (const { stream, data } of process.output) (stream === 'stdout' ? stdout : stderr).add(data);
      return await process.exit;
    } catch (error) {
      if (!(error instanceof CoppiceError) || !agentIsSilent.has(error.code)) throw error;
      const { code, message, hint, details } = watch.explain(error);
      const kept = {
        stdout: outputText(stdout.finish().bytes).text,
        stderr: outputText(stderr.finish().bytes).text,
      };
      throw new CoppiceError(code, message, { hint, details: { ...details, ...kept }, cause: error });
    }
  }

  /** A process that ends or closes its input early is no failure of the call. */
  async #feed(process: GuestProcess, stdin: Buffer | undefined): Promise<void> {
    if (stdin === undefined || stdin.length === 0) return;
    try {
      await process.writeStdin(stdin);
      await process.endStdin();
    } catch (error) {
      if (!(error instanceof CoppiceError) || error.code === 'internal') throw error;
    }
  }

  /** Starts a process whose streams the caller handles; the sandbox is in use until it ends or is closed. */
  async stream(ref: string, input: CommandInput): Promise<ExecStream> {
    const lease = await this.#guests.acquire(ref);
    try {
      const watch = lease.watchLimits();
      const process = await lease.guest.exec(toProcessRequest(lease, input));
      return this.#leased(process, watch, lease);
    } catch (error) {
      lease.release();
      throw error;
    }
  }

  #leased(process: GuestProcess, watch: LimitWatch, lease: GuestLease): ExecStream {
    const explain = (error: unknown): never => {
      throw error instanceof CoppiceError ? watch.explain(error) : error;
    };
    const exit = process.exit
      .then((status) => watch.settle(toExit(status)), explain)
      .finally(() => lease.release());
    exit.catch(() => {});
    return {
      pid: process.pid,
      output: heard(process.output, watch, explain),
      exit,
      writeStdin: (data) => process.writeStdin(data),
      endStdin: () => process.endStdin(),
      signal: (signal) => process.signal(signal),
      close: () => {
        process.close();
        lease.release();
      },
    };
  }
}

async function* heard(
  output: AsyncIterable<StreamedChunk>,
  watch: LimitWatch,
  explain: (error: unknown) => never,
): AsyncIterable<StreamedChunk> {
  try {
    for await (const chunk of output) {
      if (chunk.stream === 'stderr') watch.hear(chunk.data);
      yield chunk;
    }
  } catch (error) {
    explain(error);
  }
}
