import type { IBufferCell, IBufferLine } from '@xterm/headless';
import xterm from '@xterm/headless';
import type { Cast } from './record-cast.ts';

interface Frame {
  readonly seconds: number;
  readonly rows: readonly string[];
}

const cell = { width: 8.4, height: 19 } as const;
const margin = 16;
/** What comes within this time is one picture. */
const frameSeconds = 0.05;
const longestPauseSeconds = 3;
const theme = { paper: '#16181d', ink: '#d7dae0', faint: '#8a919e' } as const;
const colours = [
  '#16181d',
  '#e06c75',
  '#98c379',
  '#e5c07b',
  '#61afef',
  '#c678dd',
  '#56b6c2',
  '#d7dae0',
] as const;

/** A recording as one SVG that plays by itself, without a script: each picture is shown in its time by CSS. */
export const renderSvg = async (cast: Cast, title: string): Promise<string> => {
  const frames = await framesOf(cast);
  const end = frames.at(-1)!.seconds;
  const width = cast.width * cell.width + 2 * margin;
  const height = cast.height * cell.height + 2 * margin;
  // A row that several pictures show is in the file once.
  const rows = new Map<string, number>();
  for (const row of frames.flatMap((frame) => frame.rows)) if (!rows.has(row)) rows.set(row, rows.size);
  const pictures = frames.slice(0, -1).map((frame, index) => {
    const from = (frame.seconds / end) * 100;
    const to = (frames[index + 1]!.seconds / end) * 100;
    const uses = frame.rows
      .map((row, at) => (row === '' ? '' : `<use href="#r${rows.get(row)}" y="${at * cell.height}"/>`))
      .join('');
    return {
      rule: `@keyframes f${index}{0%,${percent(from)}{visibility:hidden}${percent(from)},${percent(to)}{visibility:visible}${percent(to)},100%{visibility:hidden}}#f${index}{animation:f${index} ${end.toFixed(2)}s step-end infinite}`,
      group: `<g id="f${index}"${index === frames.length - 2 ? '' : ' class="o"'}>${uses}</g>`,
    };
  });
  const defined = [...rows]
    .filter(([row]) => row !== '')
    .map(([row, id]) => `<text id="r${id}" x="${margin}" y="${margin + 14}">${row}</text>`);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">`,
    `<title>${escapeMarkup(title)}</title>`,
    `<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:${theme.ink};white-space:pre}`,
    // Who wants no motion sees the last picture.
    `.o{visibility:hidden}@media (prefers-reduced-motion:no-preference){${pictures.map(({ rule }) => rule).join('')}}</style>`,
    `<rect width="100%" height="100%" rx="8" fill="${theme.paper}"/>`,
    `<defs>${defined.join('')}</defs>`,
    ...pictures.map(({ group }) => group),
    '</svg>\n',
  ].join('\n');
};

const percent = (value: number): string => `${value.toFixed(3)}%`;

const framesOf = async ({ width, height, events }: Cast): Promise<Frame[]> => {
  const terminal = new xterm.Terminal({ cols: width, rows: height, allowProposedApi: true });
  const frames: Frame[] = [];
  let shown = 0;
  let last = 0;
  for (const [index, [at, , data]] of events.entries()) {
    shown += Math.min(at - last, longestPauseSeconds);
    last = at;
    await new Promise<void>((written) => terminal.write(data, written));
    const next = events[index + 1];
    if (next !== undefined && next[0] - at < frameSeconds && index % 4 !== 0) continue;
    const rows = rowsOf(terminal.buffer.active, height);
    if (frames.at(-1)?.rows.join('\n') !== rows.join('\n') || next === undefined)
      frames.push({ seconds: shown, rows });
  }
  terminal.dispose();
  return frames;
};

const rowsOf = (
  buffer: { readonly viewportY: number; getLine(y: number): IBufferLine | undefined },
  height: number,
): string[] =>
  Array.from({ length: height }, (_, at) => {
    const line = buffer.getLine(buffer.viewportY + at);
    return line === undefined ? '' : markup(line);
  });

/** Runs of one style become one element; what ends a line without ink is left out. */
const markup = (line: IBufferLine): string => {
  const text = line.translateToString(true);
  let out = '';
  let run = '';
  let style = '';
  const flush = (): void => {
    if (run !== '') out += style === '' ? escapeMarkup(run) : `<tspan ${style}>${escapeMarkup(run)}</tspan>`;
    run = '';
  };
  for (let x = 0; x < text.length; x += 1) {
    const found = line.getCell(x);
    const next = found === undefined ? '' : styleOf(found);
    if (next !== style) {
      flush();
      style = next;
    }
    run += found?.getChars() || ' ';
  }
  flush();
  return out;
};

const styleOf = (found: IBufferCell): string => {
  const parts: string[] = [];
  if (found.isDim()) parts.push(`fill="${theme.faint}"`);
  else if (found.isFgPalette()) parts.push(`fill="${colours[found.getFgColor() % 8]}"`);
  if (found.isBold()) parts.push('font-weight="bold"');
  return parts.join(' ');
};

const escapeMarkup = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
