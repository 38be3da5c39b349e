import { randomBytes } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { CoppiceError, type ErrorCode } from '@coppice/protocol';
import { BodyReader } from './body-reader.ts';
import { BodyWriter } from './body-writer.ts';
import { Channel, type ChannelLink, restartHint } from './channel.ts';
import { FrameDecoder } from './frame-decoder.ts';
import { GatheredBytes } from './gathered-bytes.ts';
import { type CallDeadlines, type Patience, patienceOf } from './patience.ts';
import {
  encodeHeader,
  frameHeaderBytes,
  frameMaxPayload,
  frameType,
  type Operation,
  operation,
  protocolError,
  requestMore,
  wireMagic,
  wireVersion,
} from './wire.ts';

export interface GuestLinkOptions {
  /** How long the agent may take to answer the greeting. */
  readonly greetTimeoutMs?: number;
  /**
   * The byte stream served another session before (gVisor's stdio): skip to the answer to our own greeting, even if what
   * was under way was cut in the middle of a frame.
   */
  readonly unaligned?: boolean;
  /** How long its answers may take, once it has greeted. */
  readonly patience?: Patience | undefined;
}

interface OpenOptions {
  readonly windowBytes?: number;
  readonly inputEnds?: boolean;
  readonly signal?: AbortSignal | undefined;
  readonly deadlines?: CallDeadlines;
}

const cancelWith = (channel: Channel, signal: AbortSignal): void => {
  const cancel = () => channel.cancel(signal.reason);
  const ended = () => signal.removeEventListener('abort', cancel);
  signal.addEventListener('abort', cancel);
  channel.done.then(ended, ended);
};

const defaultWindowBytes = 1 << 20;
const resultMaxBytes = 64 << 20;
const sendWindowMaxBytes = 16 << 20;
/** What may cross the end of a call that was given up, besides its data: its answer, its end, a few credits. */
const crossingBytes = 2 * frameMaxPayload;
/** What an agent has not taken: beyond that nothing more is asked of it. */
const untakenMaxBytes = 32 << 20;
/** How often deadlines are looked at, while there is a call. */
const tickMs = 500;

const refusedInside =
  'The sandbox itself refuses it: look at owner and mode there, as with `coppice exec NAME -- ls -ld PATH`.';

const hints: Readonly<Record<string, string>> = {
  ENOENT:
    'Look inside the sandbox, as with `coppice exec NAME -- ls -l PATH`; install or make what is missing.',
  EACCES: refusedInside,
  EPERM: refusedInside,
  EROFS: 'That place cannot be written in the sandbox: use another.',
  ENOTEMPTY: 'Remove it recursively to remove what is in it as well.',
  ECONNREFUSED: 'Start the server in the sandbox first; it must listen on 127.0.0.1, ::1 or all addresses.',
  EAGAIN: 'End some processes of the sandbox, or raise its limit of processes.',
  EIO: 'A disk of this machine failed: look at its kernel log (`dmesg`), and restore the file from a snapshot or a backup.',
  EXDEV: 'Copy it and remove the original: the two places are on different filesystems.',
};

/** Which part of starting a process failed, for those who treat a program that is not there as a shell does. */
const startSteps: ReadonlySet<string> = new Set(['program', 'cwd', 'user']);

/** What a sandbox may say went wrong in it. About tokens and limits of the daemon it has nothing to say. */
const guestCodes: ReadonlySet<string> = new Set<ErrorCode>([
  ...(['invalid_argument', 'not_found', 'name_taken', 'forbidden', 'in_use', 'wrong_state'] as const),
  ...(['conflict', 'unsafe', 'unsupported', 'too_large', 'no_space', 'limit_reached', 'timeout'] as const),
  'unavailable',
]);
const messageMaxChars = 4096;

/** The session with an agent over any byte stream: greets, multiplexes calls, closes everything on the first nonsense. */
export class GuestLink implements ChannelLink {
  readonly closed: Promise<void>;
  readonly #stream: Duplex;
  readonly #channels = new Map<number, Channel>();
  readonly #gone = Promise.withResolvers<void>();
  readonly #greeted = Promise.withResolvers<void>();
  readonly #nonce = randomBytes(8);
  #lastId = 0;
  #sendWindowBytes = 0;
  /** What may still come for calls that were given up. */
  #strayBytes = 0;
  #hasGreeted = false;
  #failure: CoppiceError | undefined;
  readonly patience: Patience;
  #clockMs = 0;
  #ticking: NodeJS.Timeout | undefined;
  #tickedMs = 0;
  #holds = 0;
  #heardMs = 0;
  #probe: Channel | undefined;

  private constructor(stream: Duplex, options: GuestLinkOptions) {
    this.#stream = stream;
    this.patience = options.patience ?? patienceOf();
    this.closed = this.#gone.promise;
    const decoder = new FrameDecoder(
      {
        onFrame: (type, _flags, channel, payload) => this.#onFrame(type, channel, payload),
        onData: (stream, channel, piece) => this.#onData(stream, channel, piece),
      },
      options.unaligned ? this.#greetingAnswerStart() : undefined,
    );
    stream.on('data', (chunk: Buffer) => {
      if (this.#failure !== undefined) return;
      this.#heardMs = this.#clockMs;
      try {
        decoder.push(chunk);
      } catch (error) {
        this.#fail(error instanceof CoppiceError ? error : protocolError(String(error)));
      }
    });
    stream.on('error', (error) => this.#fail(this.#lost(error)));
    stream.on('end', () => this.#fail(this.#lost()));
    stream.on('close', () => this.#fail(this.#lost()));
  }

  /** Greets the agent; takes the stream, and destroys it when the agent does not answer as it should. */
  static async open(stream: Duplex, options: GuestLinkOptions = {}): Promise<GuestLink> {
    const link = new GuestLink(stream, options);
    const timeoutMs = options.greetTimeoutMs ?? 10_000;
    const timer = setTimeout(() => {
      link.#fail(
        new CoppiceError('unavailable', `the agent of the sandbox did not answer within ${timeoutMs} ms`, {
          hint: 'Look whether the sandbox is frozen or out of memory, or stop and start it.',
        }),
      );
    }, timeoutMs);
    try {
      link.#greet();
      await link.#greeted.promise;
      return link;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Sends a request; the channel carries what belongs to it, and is cancelled with the signal. */
  open(
    op: Operation,
    body: Buffer,
    { windowBytes = defaultWindowBytes, inputEnds = false, signal, deadlines = {} }: OpenOptions = {},
  ): Channel {
    if (this.#failure !== undefined) throw this.#failure;
    signal?.throwIfAborted();
    if (this.#stream.writableLength > untakenMaxBytes)
      throw new CoppiceError('unavailable', 'the agent of the sandbox takes nothing any more', {
        hint: restartHint,
      });
    this.#startTicking();
    const id = this.#nextId();
    const head = Buffer.allocUnsafe(5);
    head[0] = op;
    head.writeUInt32LE(windowBytes, 1);
    const whole = Buffer.concat([head, body]);
    const channel = new Channel(this, id, windowBytes, this.#sendWindowBytes, deadlines);
    this.#channels.set(id, channel);
    this.#stream.cork();
    for (let at = 0; at < whole.length; at += frameMaxPayload) {
      const part = whole.subarray(at, at + frameMaxPayload);
      const more = at + part.length < whole.length ? requestMore : 0;
      this.#write(frameType.request, more, id, part);
    }
    if (inputEnds) channel.end();
    this.#stream.uncork();
    if (signal !== undefined) cancelWith(channel, signal);
    return channel;
  }

  /** A request with one answer: its data, and the body of its end. */
  async call(
    op: Operation,
    body: Buffer,
    options: OpenOptions = {},
  ): Promise<{ data: Buffer; body: Buffer }> {
    const channel = this.open(op, body, options);
    const gathered = new GatheredBytes();
    for (let piece = await channel.read(); piece !== undefined; piece = await channel.read()) {
      gathered.add(piece.data);
      if (gathered.length > resultMaxBytes) {
        channel.cancel();
        throw new CoppiceError('too_large', 'the answer of the sandbox is larger than 64 MiB', {
          hint: 'Ask for less: a smaller limit or depth.',
        });
      }
    }
    return { data: gathered.bytes, body: await channel.done };
  }

  close(): void {
    this.#fail(new CoppiceError('unavailable', 'the connection to the sandbox was closed'));
  }

  send(type: number, channel: number, payload?: Uint8Array): void {
    if (this.#failure === undefined) this.#write(type, 0, channel, payload);
  }

  get clockMs(): number {
    return this.#clockMs;
  }

  /** The sandbox is made to stand still: no deadline comes nearer until the function that this returns is called. */
  hold(): () => void {
    this.#holds += 1;
    let held = true;
    return () => {
      if (held) this.#holds -= 1;
      held = false;
    };
  }

  sendData(channel: number, payload: Uint8Array): Promise<void> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    const header = Buffer.allocUnsafe(frameHeaderBytes);
    encodeHeader(header, frameType.data, 0, channel, payload.length);
    return new Promise((resolve) => {
      this.#stream.cork();
      this.#stream.write(header);
      // A failed write shows as the end of the link, which fails every channel.
      this.#stream.write(payload, () => resolve());
      this.#stream.uncork();
    });
  }

  forget(channel: number, unclaimedBytes: number): void {
    this.#channels.delete(channel);
    this.#strayBytes += unclaimedBytes + crossingBytes;
  }

  /** One timer for all calls, and none while there is no call: a short one costs nothing. */
  #startTicking(): void {
    if (this.#ticking !== undefined) return;
    this.#tickedMs = performance.now();
    this.#heardMs = this.#clockMs;
    this.#ticking = setInterval(() => this.#tick(), tickMs).unref();
  }

  #tick(): void {
    const nowMs = performance.now();
    // A daemon that was busy or suspended itself has not heard what there was to hear.
    const passedMs = Math.min(nowMs - this.#tickedMs, 2 * tickMs);
    this.#tickedMs = nowMs;
    if (this.#channels.size === 0) {
      clearInterval(this.#ticking);
      this.#ticking = undefined;
      return;
    }
    if (this.#holds > 0) {
      this.#heardMs = this.#clockMs;
      return;
    }
    this.#clockMs += passedMs;
    for (const channel of [...this.#channels.values()]) channel.expire();
    this.#lookForLife();
  }

  /** An agent answers at once, whatever else it does. One that says nothing is asked; one that then says nothing is given up. */
  #lookForLife(): void {
    const silentMs = this.#clockMs - this.#heardMs;
    const { answerMs } = this.patience;
    if (silentMs > answerMs) {
      const silent = new CoppiceError(
        'unavailable',
        `the agent of the sandbox has said nothing for ${answerMs / 1000} s`,
        { hint: restartHint },
      );
      for (const channel of [...this.#channels.values()]) channel.cancel(silent);
    } else if (silentMs > answerMs / 2 && !this.#probe?.open) {
      this.#probe = this.open(operation.stat, new BodyWriter().string('/', 'the path').finish());
    }
  }

  #greet(): void {
    const payload = Buffer.alloc(20);
    payload.write(wireMagic, 0, 'latin1');
    payload.writeUInt32LE(wireVersion, 8);
    this.#nonce.copy(payload, 12);
    this.#write(frameType.hello, 0, 0, payload);
  }

  #greetingAnswerStart(): Buffer {
    const start = Buffer.alloc(frameHeaderBytes + 20);
    encodeHeader(start, frameType.hello, 0, 0, 28);
    start.write(wireMagic, frameHeaderBytes, 'latin1');
    start.writeUInt32LE(wireVersion, frameHeaderBytes + 8);
    this.#nonce.copy(start, frameHeaderBytes + 12);
    return start;
  }

  #onFrame(type: number, id: number, payload: Buffer): void {
    if (id === 0) {
      this.#onLinkFrame(type, payload);
      return;
    }
    const channel = this.#channelOf(id, frameHeaderBytes + payload.length);
    if (channel === undefined) return;
    // Decoded first: what cannot be understood fails the link, and with it this channel.
    const failure = type === frameType.error ? this.#decodeError(payload) : undefined;
    if (type === frameType.done || type === frameType.error) this.#channels.delete(id);
    if (failure === undefined) channel.receiveFrame(type, payload);
    else channel.fail(failure);
  }

  #onLinkFrame(type: number, payload: Buffer): void {
    if (type === frameType.error) {
      const error = this.#decodeError(payload);
      throw protocolError(`it closed the connection: ${error.message}`);
    }
    if (type !== frameType.hello || this.#hasGreeted) throw protocolError('an unexpected frame on channel 0');
    const reader = new BodyReader(payload);
    const magic = reader.bytes(8).toString('latin1');
    const version = reader.u32();
    const nonce = reader.bytes(8);
    reader.u32();
    this.#sendWindowBytes = reader.u32();
    reader.finish();
    if (this.#sendWindowBytes > sendWindowMaxBytes) throw protocolError('its window is too large');
    if (magic !== wireMagic || version !== wireVersion || !nonce.equals(this.#nonce)) {
      throw protocolError('it does not answer the greeting');
    }
    this.#hasGreeted = true;
    this.#greeted.resolve();
  }

  #onData(stream: number, id: number, piece: Buffer): void {
    this.#channelOf(id, piece.length)?.receiveData(stream, piece);
  }

  /** Undefined for a channel that was closed here while its last frames were on their way. */
  #channelOf(id: number, bytes: number): Channel | undefined {
    if (!this.#hasGreeted) throw protocolError('it speaks before it was greeted');
    const channel = this.#channels.get(id);
    if (channel !== undefined) return channel;
    if (((id - this.#lastId) | 0) > 0) throw protocolError('it answers a call that was never made');
    this.#strayBytes -= bytes;
    if (this.#strayBytes < 0) throw protocolError('it goes on with a call that is over');
    return undefined;
  }

  #decodeError(payload: Buffer): CoppiceError {
    const reader = new BodyReader(payload);
    const code = reader.string();
    const errno = reader.string();
    const message = reader.string().slice(0, messageMaxChars);
    const step = reader.remaining > 0 ? reader.string() : '';
    reader.finish();
    const hint = Object.hasOwn(hints, errno) ? hints[errno] : undefined;
    return new CoppiceError(guestCodes.has(code) ? (code as ErrorCode) : 'internal', message, {
      ...(hint === undefined ? {} : { hint }),
      ...(errno === '' ? {} : { details: { errno, ...(startSteps.has(step) ? { step } : {}) } }),
    });
  }

  #nextId(): number {
    do {
      this.#lastId = (this.#lastId + 1) >>> 0;
    } while (this.#lastId === 0 || this.#channels.has(this.#lastId));
    return this.#lastId;
  }

  #write(type: number, flags: number, channel: number, payload?: Uint8Array): void {
    const length = payload?.length ?? 0;
    const frame = Buffer.allocUnsafe(frameHeaderBytes + length);
    encodeHeader(frame, type, flags, channel, length);
    if (payload !== undefined) frame.set(payload, frameHeaderBytes);
    this.#stream.write(frame);
  }

  #lost(cause?: Error): CoppiceError {
    return new CoppiceError('unavailable', 'the connection to the agent of the sandbox was lost', {
      hint: 'Look whether the sandbox still runs, and call again.',
      ...(cause === undefined ? {} : { cause }),
    });
  }

  #fail(error: CoppiceError): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    clearInterval(this.#ticking);
    this.#greeted.promise.catch(() => {});
    this.#greeted.reject(error);
    const channels = [...this.#channels.values()];
    this.#channels.clear();
    for (const channel of channels) channel.fail(error);
    this.#stream.destroy();
    this.#gone.resolve();
  }
}
