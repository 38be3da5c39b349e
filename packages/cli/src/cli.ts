import { resolve } from 'node:path';
import { Coppice, defaultHome, type EndpointOptions, findEndpoint } from '@coppice/sdk';
import { JsonOutput } from './ui/json.ts';
import type { Output } from './ui/output.ts';
import { TextOutput } from './ui/text.ts';

/** The outside world of a command. */
export interface Io {
  readonly stdin: NodeJS.ReadStream;
  readonly stdout: NodeJS.WriteStream;
  readonly stderr: NodeJS.WriteStream;
  readonly env: NodeJS.ProcessEnv;
}

export interface CommonOptions {
  readonly json?: boolean;
  readonly home?: string;
}

/** What every command works with. */
export class Cli {
  readonly io: Io;
  /** Fires on SIGINT, SIGTERM and SIGHUP, so that a command ends what it began. Its reason is an Interruption. */
  readonly signal: AbortSignal;
  exitCode = 0;
  /** How long a command may take to end after a signal. Then it ends all the same, whatever the daemon does. */
  graceMs = 5_000;
  /** What to say if it could not clean up in that time. */
  leftBehind: string | undefined;
  #out: Output;
  #isConfigured = false;
  #givenHome: string | undefined;
  #coppice: Coppice | undefined;

  constructor(io: Io, signal: AbortSignal) {
    this.io = io;
    this.signal = signal;
    this.#out = new TextOutput(io);
  }

  configure({ json, home }: CommonOptions): void {
    this.#isConfigured = true;
    if (json) this.#out = new JsonOutput(this.io.stdout);
    if (home !== undefined) this.#givenHome = resolve(home);
  }

  /** Whether the options are known: not while the command line itself is what is wrong. */
  get isConfigured(): boolean {
    return this.#isConfigured;
  }

  get out(): Output {
    return this.#out;
  }

  get home(): string {
    return this.#givenHome ?? resolve(this.io.env.COPPICE_HOME || defaultHome);
  }

  get coppice(): Coppice {
    this.#coppice ??= new Coppice(this.#endpoint, this.io.env);
    return this.#coppice;
  }

  /** The address of the daemon for programs that do not use its socket. */
  get url(): URL {
    return findEndpoint(this.#endpoint, this.io.env).url;
  }

  get #endpoint(): EndpointOptions {
    return this.#givenHome === undefined ? {} : { home: this.#givenHome };
  }

  close(): void {
    this.#coppice?.close();
  }
}
