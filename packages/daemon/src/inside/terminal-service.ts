import type { openTerminalSchema, Terminal } from '@coppice/protocol';
import type { PtyInfo } from '@coppice/runtime';
import type { z } from 'zod';
import { type GuestAccess, withGuest } from './guest-access.ts';
import { toExit, toProcessRequest } from './process-request.ts';
import { type ScreenAttachment, type TerminalAttachment, TerminalScreen } from './terminal-screen.ts';

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

/** A screen is kept for this long after the last who looked at it has gone: long enough to load a page again. */
const screenKeptMs = 30_000;
/** The oldest that nobody looks at goes when there are more. */
const screensKept = 64;

interface KeptScreen {
  readonly screen: TerminalScreen;
  closing: NodeJS.Timeout | undefined;
  readonly close: () => void;
}

const keyOf = (sandboxId: string, id: number): string => `${sandboxId} ${id}`;

/** Terminals: they outlive who is attached to them. */
export class TerminalService {
  readonly #guests: GuestAccess;
  readonly #screens = new Map<string, Promise<KeptScreen>>();

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
  async attach(ref: string, id: number): Promise<TerminalAttachment> {
    const lease = await this.#guests.acquire(ref);
    try {
      const watch = lease.watchLimits();
      const attachment = await lease.guest.attachPty(id);
      const exit = attachment.exit
        .then((status) => watch.settle(toExit(status)))
        .finally(() => lease.release());
      // Whoever left does not ask for it.
      exit.catch(() => {});
      return {
        output: attachment.output,
        exit,
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

  /** The same with the screen as it is, whatever was drawn before. */
  async attachScreen(ref: string, id: number): Promise<ScreenAttachment> {
    const { sandboxId, release } = await this.#guests.acquire(ref);
    const key = keyOf(sandboxId, id);
    try {
      const opening = this.#screens.get(key) ?? this.#openScreen(sandboxId, id, key);
      this.#screens.set(key, opening);
      const kept = await opening;
      clearTimeout(kept.closing);
      return kept.screen.attach(() => this.#leave(kept));
    } finally {
      release();
    }
  }

  async #openScreen(sandboxId: string, id: number, key: string): Promise<KeptScreen> {
    try {
      const terminal = (await this.list(sandboxId)).find((found) => found.id === id);
      const attachment = await this.attach(sandboxId, id);
      const screen = new TerminalScreen(attachment, terminal ?? { cols: 80, rows: 24 });
      const close = () => {
        this.#screens.delete(key);
        clearTimeout(kept.closing);
        screen.close();
      };
      const kept: KeptScreen = { screen, closing: undefined, close };
      // Who comes later attaches to the terminal itself, which shows how it ended.
      screen.done.then(close, close);
      return kept;
    } catch (error) {
      this.#screens.delete(key);
      throw error;
    }
  }

  #leave(kept: KeptScreen): void {
    if (kept.screen.viewers > 0) return;
    kept.closing = setTimeout(kept.close, this.#screens.size > screensKept ? 0 : screenKeptMs);
    kept.closing.unref();
  }

  async resize(ref: string, id: number, cols: number, rows: number): Promise<void> {
    await withGuest(this.#guests, ref, async ({ guest, sandboxId }) => {
      await guest.resizePty(id, cols, rows);
      (await this.#screens.get(keyOf(sandboxId, id)))?.screen.resize({ cols, rows });
    });
  }

  async signal(ref: string, id: number, signal: number): Promise<void> {
    await withGuest(this.#guests, ref, ({ guest }) => guest.signalPty(id, signal));
  }
}
