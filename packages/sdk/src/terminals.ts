import type { Terminal } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';
import type { TerminalOptions } from './options.ts';
import type { AttachOptions, TerminalSession } from './terminal-session.ts';

/** Terminals of one sandbox: a shell with a screen that can be left and joined again. */
export class Terminals {
  readonly #caller: Caller;
  readonly #sandbox: string;

  constructor(caller: Caller, sandbox: string) {
    this.#caller = caller;
    this.#sandbox = sandbox;
  }

  open({ signal, ...body }: TerminalOptions = {}): Promise<Terminal> {
    return this.#caller.call('openTerminal', { params: { sandbox: this.#sandbox }, body, signal });
  }

  async list({ signal }: CallOptions = {}): Promise<Terminal[]> {
    return (await this.#caller.call('listTerminals', { params: { sandbox: this.#sandbox }, signal })).items;
  }

  async attach(terminal: number, options: AttachOptions = {}): Promise<TerminalSession> {
    const { TerminalSession } = await import('./terminal-session.ts');
    return TerminalSession.attach(this.#caller, { sandbox: this.#sandbox, terminal }, options);
  }

  async resize(terminal: number, cols: number, rows: number, { signal }: CallOptions = {}): Promise<void> {
    const params = { sandbox: this.#sandbox, terminal };
    await this.#caller.call('resizeTerminal', { params, body: { cols, rows }, signal });
  }

  async kill(terminal: number, signalNumber = 15, { signal }: CallOptions = {}): Promise<void> {
    const params = { sandbox: this.#sandbox, terminal };
    await this.#caller.call('signalTerminal', { params, body: { signal: signalNumber }, signal });
  }
}
