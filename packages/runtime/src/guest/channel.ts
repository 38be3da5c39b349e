import { CoppiceError } from '@coppice/protocol';
import type { CallDeadlines } from './patience.ts';
import { Piece } from './piece.ts';
import { frameMaxPayload, frameType, protocolError } from './wire.ts';

/** What a channel needs of its link. */
export interface ChannelLink {
  send(type: number, channel: number, payload?: Uint8Array): void;
  /** Settles when the bytes are out of the caller's buffer. */
  sendData(channel: number, payload: Uint8Array): Promise<void>;
  /** The time as deadlines count it: it stands still while the sandbox is made to. */
  readonly clockMs: number;
  /** Nothing more is wanted of it; that much may still be on its way. */
  forget(channel: number, unclaimedBytes: number): void;
}

/** So many pieces may wait before their order gives way to their number. */
const mostInOrder = 1024;

/** One call on its way: its answers and streams, with the credit of both directions. */
export class Channel {
  readonly id: number;
  /** The first answer, for calls that have one before they are done. */
  readonly replied: Promise<Buffer>;
  /** The last answer. */
  readonly done: Promise<Buffer>;
  readonly #link: ChannelLink;
  readonly #windowBytes: number;
  readonly #sendWindowBytes: number;
  readonly #reply = Promise.withResolvers<Buffer>();
  readonly #finish = Promise.withResolvers<Buffer>();
  readonly #queue: Piece[] = [];
  #queueHead = 0;
  #receiveCredit: number;
  #consumedBytes = 0;
  #sendCredit: number;
  #creditWaiters: (() => void)[] = [];
  readonly #senders = new Set<() => void>();
  #readWaiter: (() => void) | undefined;
  #inputEnded = false;
  #replied = false;
  #ended = false;
  #failure: unknown;
  #discarding = false;
  /** All is sent, and only the agent has something left to say. */
  #outputEnded = false;
  readonly #deadlines: CallDeadlines;
  readonly #openedMs: number;
  /** When something last moved, or this side last began to wait. */
  #movedMs: number;

  constructor(
    link: ChannelLink,
    id: number,
    windowBytes: number,
    sendWindowBytes: number,
    deadlines: CallDeadlines,
  ) {
    this.#link = link;
    this.#deadlines = deadlines;
    this.#openedMs = link.clockMs;
    this.#movedMs = this.#openedMs;
    this.id = id;
    this.#windowBytes = windowBytes;
    this.#receiveCredit = windowBytes;
    this.#sendWindowBytes = sendWindowBytes;
    this.#sendCredit = sendWindowBytes;
    this.replied = this.#reply.promise;
    this.done = this.#finish.promise;
    // Who asks for neither has the failure from the stream; it is not unhandled.
    this.replied.catch(() => {});
    this.done.catch(() => {});
  }

  get open(): boolean {
    return !this.#ended;
  }

  // ---- from the link ----

  receiveData(stream: number, data: Buffer): void {
    this.#moved();
    this.#receiveCredit -= data.length;
    if (this.#receiveCredit < 0 || this.#inputEnded) throw protocolError('it sent data that was not granted');
    if (this.#discarding) {
      this.#consume(data.length);
      return;
    }
    this.#enqueue(stream, data);
    this.#wakeReader();
  }

  /** Pieces are joined, as an agent could otherwise make a thousand bytes of memory of every byte that it sends. */
  #enqueue(stream: number, data: Buffer): void {
    const { length } = this.#queue;
    const last = this.#queue[length - 1];
    if (last?.stream === stream && last.append(data)) return;
    // Two streams in turn: which of the two wrote first was never promised.
    const farBehind = length - this.#queueHead > mostInOrder;
    const other = farBehind ? this.#queue[length - 2] : undefined;
    if (other?.stream === stream && other.append(data)) return;
    this.#queue.push(Piece.copy(stream, data));
  }

  receiveFrame(type: number, payload: Buffer): void {
    this.#moved();
    switch (type) {
      case frameType.reply:
        if (this.#replied) throw protocolError('it answered a call twice');
        this.#replied = true;
        this.#reply.resolve(payload);
        return;
      case frameType.end:
        if (this.#inputEnded) throw protocolError('it ended a stream twice');
        this.#inputEnded = true;
        this.#wakeReader();
        return;
      case frameType.credit:
        this.#receiveCreditFrame(payload);
        return;
      case frameType.done:
        this.#end();
        // An error costs a stack trace: made only when somebody can get to see it.
        if (!this.#replied) this.#reply.reject(protocolError('it ended a call before it answered'));
        this.#finish.resolve(payload);
        return;
      default:
        throw protocolError('a frame has a type that only the host sends');
    }
  }

  #receiveCreditFrame(payload: Buffer): void {
    const more = payload.length === 4 ? payload.readUInt32LE(0) : 0;
    this.#sendCredit += more;
    // It gives back what it took, and nothing else.
    if (more === 0 || this.#sendCredit > this.#sendWindowBytes)
      throw protocolError('a credit is malformed or too large');
    this.#wakeWriters();
  }

  fail(error: unknown): void {
    if (this.#ended) return;
    this.#failure = error;
    this.#end();
    this.#reply.reject(error);
    this.#finish.reject(error);
  }

  /** Gives the call up where one of its deadlines has passed. */
  expire(): void {
    const { totalMs, replyMs, stallMs, what = 'answer' } = this.#deadlines;
    const nowMs = this.#link.clockMs;
    const openMs = nowMs - this.#openedMs;
    if (totalMs !== undefined && openMs > totalMs) this.cancel(tooLate(what, totalMs));
    else if (replyMs !== undefined && !this.#replied && openMs > replyMs) this.cancel(tooLate(what, replyMs));
    else if (stallMs !== undefined && this.#isWaiting && nowMs - this.#movedMs > stallMs)
      this.cancel(tooLate('go on', stallMs));
  }

  /** For the agent; not for whoever reads here or has more to send. */
  get #isWaiting(): boolean {
    const isRead = this.#readWaiter !== undefined;
    return isRead || this.#creditWaiters.length > 0 || this.#senders.size > 0 || this.#outputEnded;
  }

  #moved(): void {
    this.#movedMs = this.#link.clockMs;
  }

  // ---- for the caller ----

  /** The next piece, or undefined at the end of the stream. */
  async read(): Promise<Piece | undefined> {
    for (;;) {
      const piece = this.#queue[this.#queueHead];
      if (piece !== undefined) {
        this.#queueHead += 1;
        if (this.#queueHead === this.#queue.length) {
          this.#queue.length = 0;
          this.#queueHead = 0;
        } else if (this.#queueHead >= 1024) {
          this.#queue.splice(0, this.#queueHead);
          this.#queueHead = 0;
        }
        this.#consume(piece.data.length);
        return piece;
      }
      if (this.#failure !== undefined) throw this.#failure;
      if (this.#ended || this.#inputEnded) return undefined;
      this.#moved();
      await new Promise<void>((resolve) => {
        this.#readWaiter = resolve;
      });
    }
  }

  /** What comes from now on is dropped, and what is queued as well: the sender never waits for it. */
  discard(): void {
    if (this.#discarding) return;
    this.#discarding = true;
    for (const piece of this.#queue.splice(this.#queueHead)) {
      this.#consume(piece.data.length);
      piece.release();
    }
    this.#queue.length = 0;
    this.#queueHead = 0;
    this.#wakeReader();
  }

  async write(data: Uint8Array): Promise<void> {
    for (let at = 0; at < data.length; ) {
      while (this.#sendCredit === 0 && !this.#ended) {
        this.#moved();
        await new Promise<void>((resolve) => this.#creditWaiters.push(resolve));
      }
      this.#assertWritable();
      const length = Math.min(data.length - at, this.#sendCredit, frameMaxPayload);
      this.#sendCredit -= length;
      await this.#send(data.subarray(at, at + length));
      at += length;
    }
    if (data.length === 0) this.#assertWritable();
  }

  /** Also settles when the call is over: an agent that reads nothing must not hold up who gave up. */
  async #send(part: Uint8Array): Promise<void> {
    this.#moved();
    await new Promise<void>((resolve, reject) => {
      this.#senders.add(resolve);
      this.#link
        .sendData(this.id, part)
        .then(resolve, reject)
        .finally(() => this.#senders.delete(resolve));
    });
  }

  end(): void {
    this.#outputEnded = true;
    this.#moved();
    if (!this.#ended) this.#link.send(frameType.end, this.id);
  }

  signal(signal: number): void {
    this.#assertWritable();
    const payload = Buffer.allocUnsafe(4);
    payload.writeUInt32LE(signal);
    this.#link.send(frameType.signal, this.id, payload);
  }

  /** The agent ends what belongs to the call; nothing more comes of it. */
  cancel(reason?: unknown): void {
    if (this.#ended) return;
    this.#link.send(frameType.cancel, this.id);
    this.#link.forget(this.id, this.#receiveCredit);
    this.fail(reason ?? new CoppiceError('cancelled', 'the call to the sandbox was closed'));
  }

  #assertWritable(): void {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#ended) throw new CoppiceError('wrong_state', 'it has ended and takes no more input');
  }

  #consume(bytes: number): void {
    this.#consumedBytes += bytes;
    if (this.#ended || this.#consumedBytes < this.#windowBytes / 2) return;
    const payload = Buffer.allocUnsafe(4);
    payload.writeUInt32LE(this.#consumedBytes);
    this.#receiveCredit += this.#consumedBytes;
    this.#consumedBytes = 0;
    this.#link.send(frameType.credit, this.id, payload);
  }

  #end(): void {
    this.#ended = true;
    this.#wakeReader();
    this.#wakeWriters();
    for (const leave of this.#senders) leave();
  }

  #wakeReader(): void {
    const wake = this.#readWaiter;
    this.#readWaiter = undefined;
    wake?.();
  }

  #wakeWriters(): void {
    const waiters = this.#creditWaiters;
    this.#creditWaiters = [];
    for (const wake of waiters) wake();
  }
}

export const restartHint =
  'If it does not answer other calls either, stop it without a grace and start it again: `coppice stop --grace 0 NAME`, `coppice start NAME`.';

const tooLate = (what: string, timeoutMs: number): CoppiceError =>
  new CoppiceError('timeout', `the agent of the sandbox did not ${what} within ${timeoutMs / 1000} s`, {
    hint: restartHint,
  });
