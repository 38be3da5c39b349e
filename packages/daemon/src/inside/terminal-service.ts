import type { openTerminalSchema, Terminal } from '@coppice/protocol';
import type { PtyAttachment, PtyInfo } from '@coppice/runtime';
import type { z } from 'zod';
import { type GuestAccess, withGuest } from './guest-access.ts';
import { toExit, toProcessRequest } from './process-request.ts';

const toTerminal = (pty: PtyInfo): Terminal => ({
  id: pty.id,
  pid: pty.pid,
  command: [...pty.argv],
  cols: pty.cols,
  rows: pty.rows,
  running: pty.running,
  exit: pty.exit === null ? null : toExit(pty.exit),
});

/** The shell that a sandbox's image has, in order of comfort. */
const loginShell = ['/bin/sh', '-c', 'exec "$(command -v bash || command -v sh)" -l'];

/** Terminals: they outlive who is attached to them. */
export class TerminalService {
  readonly #guests: GuestAccess;

  constructor(guests: GuestAccess) {
    this.#guests = guests;
  }

  async open(ref: string, input: z.output<typeof openTerminalSchema>): Promise<Terminal> {
    return withGuest(this.#guests, ref, async (lease) => {
      const request = toProcessRequest(lease, { ...input, command: input.command ?? loginShell });
      const env = { TERM: 'xterm-256color', ...request.env };
      return toTerminal(await lease.guest.openPty({ ...request, env, cols: input.cols, rows: input.rows }));
    });
  }

  async list(ref: string): Promise<Terminal[]> {
    return withGuest(this.#guests, ref, async ({ guest }) => (await guest.listPtys()).map(toTerminal));
  }

  /** The sandbox is in use while somebody is attached. */
  async attach(ref: string, id: number): Promise<PtyAttachment> {
    const lease = await this.#guests.acquire(ref);
    try {
      const attachment = await lease.guest.attachPty(id);
      attachment.exit.then(
        () => lease.release(),
        () => lease.release(),
      );
      return {
        output: attachment.output,
        exit: attachment.exit,
        write: (data) => {
          lease.touch();
          return attachment.write(data);
        },
        detach: () => {
          attachment.detach();
          lease.release();
        },
      };
    } catch (error) {
      lease.release();
      throw error;
    }
  }

  async resize(ref: string, id: number, cols: number, rows: number): Promise<void> {
    await withGuest(this.#guests, ref, ({ guest }) => guest.resizePty(id, cols, rows));
  }

  async signal(ref: string, id: number, signal: number): Promise<void> {
    await withGuest(this.#guests, ref, ({ guest }) => guest.signalPty(id, signal));
  }
}
