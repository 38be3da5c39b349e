import { CoppiceError } from '@coppice/protocol';
import { BodyReader } from './body-reader.ts';
import { BodyWriter } from './body-writer.ts';
import type { Channel } from './channel.ts';
import { iterateChannel } from './channel-stream.ts';
import { decodeStat } from './file-codec.ts';
import type {
  ByteStream,
  FileAttributes,
  FilePiece,
  FileStat,
  ForkNotice,
  Guest,
  GuestProcess,
  GuestWatch,
  JobInfo,
  JobLog,
  JobRequest,
  JobSweep,
  ProcessRequest,
  PtyAttachment,
  PtyInfo,
  UnpackOptions,
  WriteOptions,
} from './guest.ts';
import type { GuestLink } from './guest-link.ts';
import type { CallDeadlines } from './patience.ts';
import type { Piece } from './piece.ts';
import {
  checkSignal,
  decodeAll,
  decodeJob,
  decodeJobLog,
  decodePty,
  encodeProcess,
} from './process-codec.ts';
import { RemoteProcess } from './remote-process.ts';
import { RemotePty } from './remote-pty.ts';
import { RemoteStream } from './remote-stream.ts';
import { RemoteWatch } from './remote-watch.ts';
import { type Operation, operation, protocolError } from './wire.ts';

const noMode = 0xffff_ffff;
const toTheEnd = 2n ** 63n - 1n;
const nameTimeoutMs = 60_000;
/** What the agent answers with at most where nothing is said. */
const jobReadDefaultBytes = 256 << 10;

const checkInteger = (value: number, min: number, max: number, what: string): number => {
  if (Number.isInteger(value) && value >= min && value <= max) return value;
  throw new CoppiceError(
    'invalid_argument',
    `${what} is ${value}; it must be an integer from ${min} to ${max}`,
  );
};

/** The agent may come out of a memory that a sandbox has written. */
const inTime = async (work: Promise<void>, timeoutMs: number): Promise<void> => {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    late.reject(
      new CoppiceError('timeout', `the agent of the sandbox did not answer within ${timeoutMs} ms`, {
        hint: 'Grow it from the files alone, or from another checkpoint.',
      }),
    );
  }, timeoutMs);
  try {
    await Promise.race([work, late.promise]);
  } finally {
    clearTimeout(timer);
  }
};

/** Every call to the agent of one sandbox, over one link. */
export class GuestClient implements Guest {
  readonly closed: Promise<void>;
  readonly #link: GuestLink;
  readonly #signal: AbortSignal | undefined;

  /** Its calls end with the signal. */
  constructor(link: GuestLink, signal?: AbortSignal) {
    this.#link = link;
    this.#signal = signal;
    this.closed = link.closed;
  }

  until(signal: AbortSignal): Guest {
    return new GuestClient(this.#link, signal);
  }

  async exec(request: ProcessRequest & { readonly emptyInput?: boolean }): Promise<GuestProcess> {
    const inputEnds = request.emptyInput ?? false;
    const { timeoutMs } = request;
    const { answerMs, marginMs } = this.#link.patience;
    // The agent keeps the time itself. Where it does not, the call ends all the same.
    const deadlines =
      timeoutMs === undefined
        ? { replyMs: answerMs }
        : { totalMs: timeoutMs + marginMs, what: `end a command that had ${timeoutMs / 1000} s` };
    const body = encodeProcess(request).finish();
    const channel = this.#open(operation.exec, body, { inputEnds, deadlines });
    const reader = new BodyReader(await channel.replied);
    const pid = reader.u32();
    return new RemoteProcess(channel, pid);
  }

  async startJob(request: JobRequest): Promise<JobInfo> {
    const flags = (request.keepAwake ? 1 : 0) | (request.takesInput ? 2 : 0);
    const body = encodeProcess(request, new BodyWriter().u8(flags));
    return decodeJob(await this.#ask(operation.jobStart, body));
  }

  async listJobs(): Promise<JobInfo[]> {
    return decodeAll(await this.#ask(operation.jobList, new BodyWriter()), decodeJob);
  }

  async readJob(
    id: number,
    options: { cursor?: number; maxBytes?: number; waitMs?: number },
  ): Promise<JobLog> {
    const body = this.#id(id, 'job')
      .u64(checkInteger(options.cursor ?? 0, 0, Number.MAX_SAFE_INTEGER, 'the cursor'))
      .u32(checkInteger(options.maxBytes ?? 0, 0, 2 ** 32 - 1, 'maxBytes'))
      .u32(checkInteger(options.waitMs ?? 0, 0, 2 ** 32 - 1, 'waitMs'));
    const totalMs = this.#link.patience.answerMs + (options.waitMs ?? 0);
    const log = await this.#ask(operation.jobRead, body, totalMs);
    return decodeJobLog(log, options.maxBytes || jobReadDefaultBytes);
  }

  async signalJob(id: number, signal: number): Promise<void> {
    await this.#do(operation.jobSignal, this.#id(id, 'job').u32(checkSignal(signal)));
  }

  async writeJob(id: number, start: number, bytes: Uint8Array): Promise<number> {
    const body = this.#id(id, 'job')
      .u64(checkInteger(start, 0, Number.MAX_SAFE_INTEGER, 'the start'))
      .bytes(bytes);
    const { body: answer } = await this.#call(operation.jobInput, body.finish());
    return new BodyReader(answer).u64();
  }

  async sweepJob(id: number, { marker, spared = [], signal = 0 }: JobSweep): Promise<number[]> {
    const pids = Buffer.from(new Uint32Array(spared).buffer);
    const body = this.#id(id, 'job').u32(checkSignal(signal)).string(marker, 'the marker').bytes(pids);
    const found = decodeAll(await this.#ask(operation.jobSweep, body), (reader) => reader.u32());
    return [...new Set(found)];
  }

  async openPty(request: ProcessRequest & { cols: number; rows: number }): Promise<PtyInfo> {
    const body = encodeProcess(request, this.#size(new BodyWriter(), request.cols, request.rows));
    return decodePty(await this.#ask(operation.ptyOpen, body));
  }

  async listPtys(): Promise<PtyInfo[]> {
    return decodeAll(await this.#ask(operation.ptyList, new BodyWriter()), decodePty);
  }

  async attachPty(id: number): Promise<PtyAttachment> {
    const body = this.#id(id, 'terminal').finish();
    const channel = this.#open(operation.ptyAttach, body, { deadlines: this.#startsSoon });
    await channel.replied;
    return new RemotePty(channel);
  }

  async resizePty(id: number, cols: number, rows: number): Promise<void> {
    await this.#do(operation.ptyResize, this.#size(this.#id(id, 'terminal'), cols, rows));
  }

  async signalPty(id: number, signal: number): Promise<void> {
    await this.#do(operation.ptySignal, this.#id(id, 'terminal').u32(checkSignal(signal)));
  }

  async stat(path: string): Promise<FileStat> {
    const { body } = await this.#call(operation.stat, this.#path(path).finish());
    const reader = new BodyReader(body);
    const stat = decodeStat(reader);
    reader.finish();
    return stat;
  }

  async list(
    path: string,
    options: { depth?: number; limit?: number },
  ): Promise<{ entries: FileStat[]; truncated: boolean }> {
    const limit = checkInteger(options.limit ?? 10_000, 1, 1_000_000, 'the limit');
    const body = this.#path(path)
      .u32(checkInteger(options.depth ?? 1, 1, 4096, 'the depth'))
      .u32(limit);
    const result = await this.#call(operation.list, body.finish(), this.#link.patience.treeMs);
    const truncated = new BodyReader(result.body).u8() !== 0;
    return { entries: decodeAll(new BodyReader(result.data), decodeStat, limit), truncated };
  }

  read(path: string, range: { offset?: number; length?: number } = {}): AsyncIterable<Buffer> {
    const offset = checkInteger(range.offset ?? 0, 0, Number.MAX_SAFE_INTEGER, 'the offset');
    const length =
      range.length === undefined
        ? toTheEnd
        : checkInteger(range.length, 0, Number.MAX_SAFE_INTEGER, 'the length');
    const body = this.#path(path).u64(offset).u64(length).finish();
    return this.#download(operation.read, body, range.length);
  }

  async write(path: string, data: AsyncIterable<Uint8Array>, options: WriteOptions = {}): Promise<number> {
    return (await this.#upload(operation.write, this.#writeRequest(path, options), data)).u64();
  }

  async writePieces(
    path: string,
    sizeBytes: number,
    pieces: AsyncIterable<FilePiece>,
    options: WriteOptions = {},
  ): Promise<number> {
    const size = checkInteger(sizeBytes, 0, Number.MAX_SAFE_INTEGER, 'the size');
    const body = this.#writeRequest(path, options).u64(size);
    return (await this.#upload(operation.writeStretches, body, stretches(pieces))).u64();
  }

  async move(from: string, to: string): Promise<void> {
    await this.#do(operation.move, this.#path(from).string(to, 'the path'));
  }

  async link(existing: string, path: string): Promise<void> {
    await this.#do(operation.link, this.#path(existing).string(path, 'the path'));
  }

  async setAttributes(path: string, attributes: FileAttributes): Promise<void> {
    const body = this.#path(path)
      .u32(this.#mode(attributes.mode))
      .u32(attributes.uid)
      .u32(attributes.gid)
      .u64(BigInt.asUintN(64, attributes.mtimeNs))
      .u32(attributes.extended.length);
    for (const { name, value } of attributes.extended) body.string(name, 'the attribute').bytes(value);
    await this.#do(operation.attributes, body);
  }

  async remove(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    const { treeMs } = this.#link.patience;
    await this.#do(operation.remove, this.#path(path).u8(options.recursive ? 1 : 0), treeMs);
  }

  async mkdir(path: string, options: { parents?: boolean; mode?: number } = {}): Promise<void> {
    await this.#do(
      operation.mkdir,
      this.#path(path)
        .u8(options.parents ? 1 : 0)
        .u32(this.#mode(options.mode)),
    );
  }

  watch(path: string, options: { recursive: boolean; signal: AbortSignal }): GuestWatch {
    const body = this.#path(path).u8(options.recursive ? 1 : 0);
    const deadlines = { replyMs: this.#link.patience.treeMs };
    return new RemoteWatch(this.#open(operation.watch, body.finish(), { deadlines }), options.signal);
  }

  pack(path: string): AsyncIterable<Buffer> {
    return this.#download(operation.pack, this.#path(path).finish());
  }

  async unpack(
    path: string,
    tar: AsyncIterable<Uint8Array>,
    { replaceAttributes = false }: UnpackOptions = {},
  ): Promise<{ files: number; bytes: number }> {
    const body = this.#path(path);
    // Left out where it says nothing: agents of running sandboxes may be older than it is.
    const reader = await this.#upload(operation.unpack, replaceAttributes ? body.u8(1) : body, tar);
    return { files: reader.u64(), bytes: reader.u64() };
  }

  async dial(port: number): Promise<ByteStream> {
    const body = new BodyWriter().u16(checkInteger(port, 1, 65_535, 'the port'));
    const channel = this.#open(operation.dial, body.finish(), { deadlines: this.#startsSoon });
    await channel.replied;
    return new RemoteStream(channel);
  }

  async listen(socketPath: string, helperPath: string): Promise<void> {
    await this.#do(operation.listen, this.#path(socketPath).string(helperPath, 'the path'));
  }

  async accept(): Promise<ByteStream> {
    const channel = this.#open(operation.accept, new BodyWriter().finish(), {});
    await channel.replied;
    return new RemoteStream(channel);
  }

  async setHostname(hostname: string, { timeoutMs = nameTimeoutMs } = {}): Promise<void> {
    const body = new BodyWriter().string(hostname, 'the hostname');
    await inTime(this.#do(operation.hostname, body), timeoutMs);
  }

  async announceFork(notice: ForkNotice, { timeoutMs = nameTimeoutMs } = {}): Promise<void> {
    const body = new BodyWriter()
      .string(notice.sandboxId, 'the sandbox id')
      .string(notice.name, 'the name')
      .string(notice.hostname, 'the hostname')
      .bytes(notice.entropy);
    await inTime(this.#do(operation.fork, body), timeoutMs);
  }

  async sync(): Promise<void> {
    await this.#do(operation.sync, new BodyWriter(), this.#link.patience.treeMs);
  }

  async shutdown(graceMs: number, signal?: number): Promise<void> {
    const request = () => new BodyWriter().u32(checkInteger(graceMs, 0, 2 ** 32 - 1, 'the grace'));
    const ask = (body: BodyWriter) => this.#open(operation.shutdown, body.finish()).replied;
    if (signal === undefined) await ask(request());
    else {
      await ask(request().u8(checkInteger(signal, 1, 64, 'the signal'))).catch((error: unknown) => {
        // An agent that was started by an older version knows no signal but TERM.
        if (!(error instanceof CoppiceError) || error.code !== 'invalid_argument') throw error;
        return ask(request());
      });
    }
    // PID 1 takes the connection with it: that is the sign that it is done.
    await this.#link.closed;
  }

  hold(): () => void {
    return this.#link.hold();
  }

  close(): void {
    this.#link.close();
  }

  #open(
    op: Operation,
    body: Buffer,
    options: { readonly inputEnds?: boolean; readonly deadlines?: CallDeadlines } = {},
  ): Channel {
    return this.#link.open(op, body, { ...options, signal: this.#signal });
  }

  #call(op: Operation, body: Buffer, totalMs = this.#link.patience.answerMs) {
    return this.#link.call(op, body, { signal: this.#signal, deadlines: { totalMs } });
  }

  async #ask(op: Operation, body: BodyWriter, totalMs?: number): Promise<BodyReader> {
    return new BodyReader((await this.#call(op, body.finish(), totalMs)).data);
  }

  async #do(op: Operation, body: BodyWriter, totalMs?: number): Promise<void> {
    await this.#call(op, body.finish(), totalMs);
  }

  /** It may go on for as long as it likes, once it has begun. */
  get #startsSoon(): CallDeadlines {
    return { replyMs: this.#link.patience.answerMs };
  }

  get #keepsMoving(): CallDeadlines {
    return { stallMs: this.#link.patience.stallMs };
  }

  async *#download(
    op: Operation,
    body: Buffer,
    maxBytes = Number.POSITIVE_INFINITY,
  ): AsyncGenerator<Buffer, void> {
    const channel = this.#open(op, body, { deadlines: this.#keepsMoving });
    let left = maxBytes;
    const take = ({ data }: Piece): Buffer => {
      left -= data.length;
      if (left >= 0) return data;
      channel.cancel();
      throw protocolError('it sent more of a file than was asked for');
    };
    yield* iterateChannel(channel, take, { onAbandoned: () => channel.cancel() });
    await channel.done;
  }

  async #upload(op: Operation, body: BodyWriter, data: AsyncIterable<Uint8Array>): Promise<BodyReader> {
    const channel = this.#open(op, body.finish(), { deadlines: this.#keepsMoving });
    try {
      for await (const piece of data) {
        if (!channel.open) break;
        await channel.write(piece);
      }
    } catch (error) {
      // The agent's own reason to stop is the better one; a failure of the source undoes the write.
      if (channel.open) channel.cancel();
      else await channel.done;
      throw error;
    }
    channel.end();
    return new BodyReader(await channel.done);
  }

  #writeRequest(path: string, options: WriteOptions): BodyWriter {
    return this.#path(path)
      .u32(this.#mode(options.mode))
      .string(options.owner ?? '', 'the owner')
      .u8(options.createParents ? 1 : 0);
  }

  #path(path: string): BodyWriter {
    if (!path.startsWith('/')) {
      throw new CoppiceError('invalid_argument', `the path "${path}" is not absolute`, {
        hint: 'Give the whole path inside the sandbox, from / on.',
      });
    }
    return new BodyWriter().string(path, 'the path');
  }

  #id(id: number, what: string): BodyWriter {
    return new BodyWriter().u32(checkInteger(id, 0, 2 ** 32 - 1, `the number of the ${what}`));
  }

  #size(body: BodyWriter, cols: number, rows: number): BodyWriter {
    return body.u16(checkInteger(cols, 1, 4096, 'the columns')).u16(checkInteger(rows, 1, 4096, 'the rows'));
  }

  #mode(mode: number | undefined): number {
    return mode === undefined ? noMode : checkInteger(mode, 0, 0o7777, 'the mode');
  }
}

/** Each piece with its place before it. */
async function* stretches(pieces: AsyncIterable<FilePiece>): AsyncGenerator<Uint8Array> {
  for await (const { offsetBytes, bytes } of pieces) {
    const head = Buffer.allocUnsafe(16);
    head.writeBigUInt64LE(BigInt(offsetBytes), 0);
    head.writeBigUInt64LE(BigInt(bytes.length), 8);
    yield head;
    yield bytes;
  }
}
