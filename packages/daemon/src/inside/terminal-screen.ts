import type { Exit } from '@coppice/protocol';
import type { PtyAttachment } from '@coppice/runtime';
import { SerializeAddon } from '@xterm/addon-serialize';
import type { Terminal } from '@xterm/headless';
import * as headless from '@xterm/headless';

/** What may be on its way to one viewer; one that has this much to take is waited for, or caught up with later. */
const windowBytes = 256 * 1024;
/** Of the lines above the screen; fewer where lines are long. */
const scrollbackLines = 2_000;
const scrollbackCells = 400_000;
const longestTitle = 200;

/** A CommonJS module, whose names Node finds in its default export alone. */
const { Terminal: Emulator } = ((headless as { default?: typeof headless }).default ??
  headless) as typeof headless;

const startOver = '\x1bc';

/** As the agent gives it, with an exit that says what the sandbox ran out of meanwhile. */
export interface TerminalAttachment extends Omit<PtyAttachment, 'exit'> {
  readonly exit: Promise<Exit>;
}

/** Somebody who looks at a screen: the same as an attachment to the terminal itself, and says what it has shown. */
export interface ScreenAttachment extends TerminalAttachment {
  acknowledge(bytes: number): void;
}

class Viewer {
  readonly #queue: Buffer[] = [];
  #wake: (() => void) | undefined;
  #ended = false;
  outstanding = 0;
  /** It was left behind, and gets the whole screen once it has taken what is on its way. */
  isBehind = false;

  get isFull(): boolean {
    return this.outstanding >= windowBytes;
  }

  push(data: Buffer): void {
    this.outstanding += data.length;
    this.#queue.push(data);
    this.#wake?.();
  }

  end(): void {
    this.#ended = true;
    this.#wake?.();
  }

  async *output(): AsyncGenerator<Buffer, void, undefined> {
    for (;;) {
      const next = this.#queue.shift();
      if (next !== undefined) {
        yield next;
        continue;
      }
      if (this.#ended) return;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}

export interface ScreenSize {
  readonly cols: number;
  readonly rows: number;
}

/**
 * A terminal with its screen: what a program drew is kept as a terminal would show it, so that whoever comes later sees the same,
 * colours, cursor and all. The program waits for the fastest of those who look. A slower one skips what it could not take, and is
 * given the screen as it is then.
 */
export class TerminalScreen {
  readonly #terminal: TerminalAttachment;
  readonly #emulator: Terminal;
  readonly #serializer = new SerializeAddon();
  readonly #viewers = new Set<Viewer>();
  readonly #done: Promise<void>;
  #title = '';
  #room: (() => void) | undefined;

  constructor(terminal: TerminalAttachment, { cols, rows }: ScreenSize) {
    this.#terminal = terminal;
    this.#emulator = new Emulator({
      cols,
      rows,
      scrollback: Math.min(scrollbackLines, Math.floor(scrollbackCells / cols)),
      allowProposedApi: true,
      logLevel: 'off',
    });
    this.#emulator.loadAddon(this.#serializer as unknown as Parameters<Terminal['loadAddon']>[0]);
    this.#emulator.onTitleChange((title) => {
      this.#title = title.replaceAll(/[\x00-\x1f\x7f-\x9f]/g, '').slice(0, longestTitle);
    });
    this.#done = this.#keep();
    this.#done.catch(() => {});
  }

  /** Settles when the terminal has ended, or cannot be reached any more. */
  get done(): Promise<void> {
    return this.#done;
  }

  get viewers(): number {
    return this.#viewers.size;
  }

  attach(onLeave: () => void): ScreenAttachment {
    const viewer = new Viewer();
    this.#viewers.add(viewer);
    viewer.push(this.#picture());
    void this.#done.catch(() => {}).then(() => viewer.end());
    return {
      output: viewer.output(),
      exit: this.#terminal.exit,
      write: (data) => this.#terminal.write(data),
      acknowledge: (bytes) => this.#acknowledge(viewer, bytes),
      detach: () => {
        if (!this.#viewers.delete(viewer)) return;
        viewer.end();
        this.#room?.();
        onLeave();
      },
    };
  }

  resize({ cols, rows }: ScreenSize): void {
    this.#emulator.resize(cols, rows);
  }

  close(): void {
    this.#terminal.detach();
    this.#emulator.dispose();
  }

  async #keep(): Promise<void> {
    for await (const data of this.#terminal.output) {
      const copy = Buffer.from(data);
      await new Promise<void>((resolve) => this.#emulator.write(copy, resolve));
      for (const viewer of this.#viewers) {
        if (viewer.isFull) viewer.isBehind = true;
        if (!viewer.isBehind) viewer.push(copy);
      }
      while (this.#viewers.size > 0 && [...this.#viewers].every(({ isFull }) => isFull))
        await new Promise<void>((resolve) => {
          this.#room = resolve;
        });
    }
  }

  #acknowledge(viewer: Viewer, bytes: number): void {
    viewer.outstanding = Math.max(0, viewer.outstanding - bytes);
    if (viewer.isBehind && viewer.outstanding === 0) {
      viewer.isBehind = false;
      viewer.push(this.#picture());
    }
    this.#room?.();
  }

  #picture(): Buffer {
    const title = this.#title === '' ? '' : `\x1b]2;${this.#title}\x07`;
    return Buffer.from(startOver + this.#serializer.serialize() + title);
  }
}
