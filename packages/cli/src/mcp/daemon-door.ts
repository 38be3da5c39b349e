import { readFileSync } from 'node:fs';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol/errors';
import { findRunningDaemon } from '../daemon/running-daemon.ts';
import { startDetached } from '../daemon/start-daemon.ts';

export interface DoorOptions {
  readonly home: string;
  /** Of a daemon that somebody else looks after; used instead of the one of the home. */
  readonly url?: string | undefined;
  readonly token?: string | undefined;
  readonly query: URLSearchParams;
  readonly signal: AbortSignal;
}

interface Place {
  readonly url: URL;
  readonly socketPath: string | undefined;
  readonly token: string;
}

const othersStartMs = 60_000;

/** Nothing of the request was heard: it may be sent again. */
const unheard = new Set(['ECONNREFUSED', 'ENOENT']);

/** The way to /mcp of a daemon; where none runs on the home, it starts one. */
export class DaemonDoor {
  readonly #options: DoorOptions;
  #place: Promise<Place> | undefined;

  constructor(options: DoorOptions) {
    this.#options = options;
  }

  /** Finds the daemon, or starts it. */
  async open(): Promise<void> {
    await this.#find();
  }

  async post(body: string, headers: Record<string, string>, signal: AbortSignal): Promise<IncomingMessage> {
    try {
      return await this.#send(await this.#find(), body, headers, signal);
    } catch (error) {
      if (!unheard.has((error as NodeJS.ErrnoException).code ?? '')) throw error;
      // The daemon was stopped or upgraded since: look again, once.
      this.#place = undefined;
      return this.#send(await this.#find(), body, headers, signal);
    }
  }

  #find(): Promise<Place> {
    this.#place ??= this.#look().catch((error: unknown) => {
      this.#place = undefined;
      throw error;
    });
    return this.#place;
  }

  async #look(): Promise<Place> {
    const { home, url, signal } = this.#options;
    if (url !== undefined)
      return { url: new URL(url), socketPath: undefined, token: this.#options.token ?? '' };
    const running = (await findRunningDaemon(home)) ?? (await this.#start(home, signal));
    const token = this.#options.token ?? readFileSync(join(home, 'token'), 'utf8').trim();
    return { url: new URL(running.url), socketPath: running.socket ?? undefined, token };
  }

  async #start(home: string, signal: AbortSignal) {
    try {
      return await startDetached(home, signal);
    } catch (error) {
      // Other failures have the same exit code: to wait for a port that is taken would be in vain.
      if (!(error instanceof CoppiceError) || !error.message.startsWith('a daemon already runs for '))
        throw error;
      // Another agent started one at the same time: it has the home, and answers soon.
      const deadlineMs = performance.now() + othersStartMs;
      while (performance.now() < deadlineMs && !signal.aborted) {
        const running = await findRunningDaemon(home);
        if (running !== undefined) return running;
        await delay(50);
      }
      throw error;
    }
  }

  #send(
    place: Place,
    body: string,
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<IncomingMessage> {
    const url = new URL('/mcp', place.url);
    url.search = this.#options.query.toString();
    const send = url.protocol === 'https:' ? httpsRequest : httpRequest;
    return new Promise((resolve, reject) => {
      const request = send(url, {
        method: 'POST',
        signal,
        ...(place.socketPath === undefined ? {} : { socketPath: place.socketPath }),
        headers: {
          ...headers,
          authorization: `Bearer ${place.token}`,
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(body),
          accept: 'application/json, text/event-stream',
        },
      });
      request.once('response', resolve);
      request.once('error', reject);
      request.end(body);
    });
  }
}

export const assertToken = (url: string | undefined, token: string | undefined): void => {
  if (url === undefined || (token !== undefined && token !== '')) return;
  throw new CoppiceError('unauthenticated', 'COPPICE_URL is set and COPPICE_TOKEN is not');
};
