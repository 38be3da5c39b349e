import { formatBytes, printableName } from '@coppice/console';
import type { Progress } from './output.ts';

const showAfterMs = 700;
const redrawMs = 100;
const barWidth = 24;
const frames = ['⠋', '⠙', '⠸', '⠴', '⠦', '⠇'];
const clearLine = '\r\x1b[2K';

/** One moving line on a terminal, shown only when the work takes long enough to make one wonder. */
export class ProgressLine implements Progress {
  readonly #stream: NodeJS.WriteStream;
  readonly #label: string;
  readonly #startedMs = performance.now();
  readonly #timer: NodeJS.Timeout | undefined;
  #state: Parameters<Progress['update']>[0] = { done: 0 };
  #shown = false;

  constructor(stream: NodeJS.WriteStream, label: string) {
    this.#stream = stream;
    this.#label = label;
    if (stream.isTTY) {
      this.#timer = setInterval(() => this.#draw(), redrawMs);
      this.#timer.unref();
    }
  }

  update(state: Parameters<Progress['update']>[0]): void {
    this.#state = state;
  }

  end(): void {
    clearInterval(this.#timer);
    if (this.#shown) this.#stream.write(clearLine);
  }

  #draw(): void {
    const elapsedMs = performance.now() - this.#startedMs;
    if (elapsedMs < showAfterMs) return;
    this.#shown = true;
    const line = progressText(this.#label, this.#state, elapsedMs);
    this.#stream.write(clearLine + line.slice(0, Math.max(20, (this.#stream.columns ?? 80) - 1)));
  }
}

export const progressText = (
  label: string,
  { done, total, detail }: Parameters<Progress['update']>[0],
  elapsedMs: number,
): string => {
  const seconds = `${Math.floor(elapsedMs / 1000)} s`;
  const tail = detail === undefined ? '' : `  ${printableName(detail)}`;
  if (total === undefined || total === 0) {
    const frame = frames[Math.floor(elapsedMs / redrawMs) % frames.length];
    return `${frame} ${label}  ${done > 0 ? `${formatBytes(done)}  ` : ''}${seconds}${tail}`;
  }
  const share = Math.min(1, done / total);
  const filled = Math.round(share * barWidth);
  const bar = '█'.repeat(filled) + '░'.repeat(barWidth - filled);
  return `${label}  ${bar} ${Math.floor(share * 100)} %  ${formatBytes(done)} of ${formatBytes(total)}  ${seconds}${tail}`;
};
