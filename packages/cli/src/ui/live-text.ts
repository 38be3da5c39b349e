const redrawMs = 150;

/** Lines that are drawn over themselves on a terminal while work goes on, and gone when it has ended. */
export class LiveText {
  /** Whether anybody sees it: elsewhere than on a terminal nothing is drawn. */
  readonly isLive: boolean;
  readonly #stream: NodeJS.WriteStream;
  readonly #draw: (columns: number) => string;
  readonly #timer: NodeJS.Timeout | undefined;
  #drawnLines = 0;

  constructor(stream: NodeJS.WriteStream, draw: (columns: number) => string, wanted = true) {
    this.#stream = stream;
    this.#draw = draw;
    this.isLive = wanted && stream.isTTY === true;
    if (this.isLive) {
      this.redraw();
      this.#timer = setInterval(() => this.redraw(), redrawMs);
      this.#timer.unref();
    }
  }

  redraw(): void {
    if (!this.isLive) return;
    const { columns = 80, rows = 24 } = this.#stream;
    const all = this.#draw(columns - 1).split('\n');
    const lines =
      all.length < rows ? all : [...all.slice(0, rows - 2), `… and ${all.length - rows + 2} more`];
    this.#stream.write(`${this.#erased()}${lines.join('\n')}\n`);
    this.#drawnLines = lines.length;
  }

  end(): void {
    clearInterval(this.#timer);
    if (this.isLive) this.#stream.write(this.#erased());
    this.#drawnLines = 0;
  }

  #erased(): string {
    return this.#drawnLines === 0 ? '' : `\x1b[${this.#drawnLines}A\r\x1b[J`;
  }
}
