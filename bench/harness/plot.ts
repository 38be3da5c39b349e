import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { BenchResults, TargetResult } from './results.ts';
import { valueText } from './table.ts';
import { targetText } from './target.ts';

const plotFile = fileURLToPath(new URL('../results.svg', import.meta.url));

const size = { width: 960, top: 76, line: 26, label: 430, chart: 360 };
/** How far from its target a bar can show, in factors of ten, to either side. */
const decades = 1.5;

/**
 * Each bar goes from the line of its target: to the left is better than asked, to the right is worse. The scale is
 * logarithmic, so that twice as good and twice as bad are equally long.
 */
export const plotOf = ({ rows, machine, measured_at }: BenchResults): string => {
  const bars = rows.flatMap((row) => row.results.map((result) => ({ name: row.name, result })));
  const height = size.top + bars.length * size.line + 30;
  const centre = size.label + size.chart / 2;
  const about = `${machine.cpu}, ${machine.cores} cores, Linux ${machine.kernel}, ${measured_at.slice(0, 10)}`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${size.width} ${height}" font-family="sans-serif" font-size="13">`,
    '<title>Coppice against its targets</title>',
    `<rect width="${size.width}" height="${height}" fill="#ffffff"/>`,
    text(16, 26, 'Coppice against its targets', 'font-size="18" font-weight="bold"'),
    text(16, 46, about, 'fill="#555555"'),
    text(centre - 8, 66, '← better than asked', 'fill="#555555" text-anchor="end"'),
    text(centre + 8, 66, 'worse →', 'fill="#555555"'),
    ...bars.flatMap(({ name, result }, index) => barOf(name, result, size.top + index * size.line, centre)),
    `<line x1="${centre}" y1="${size.top}" x2="${centre}" y2="${height - 24}" stroke="#222222"/>`,
    '</svg>',
    '',
  ].join('\n');
};

export const writePlot = (results: BenchResults, file: string = plotFile): void =>
  writeFileSync(file, plotOf(results));

/** How many times worse than its target; below 1 is better. */
const timesWorse = ({ target, value }: TargetResult): number => {
  if (target.value === 0) return value === 0 ? 1 : 10 ** decades;
  return target.bound === 'most' ? value / target.value : target.value / value;
};

const barOf = (name: string, result: TargetResult, y: number, centre: number): string[] => {
  const share = Math.log10(Math.max(timesWorse(result), Number.MIN_VALUE)) / decades;
  const length = (Math.max(-1, Math.min(1, share)) * size.chart) / 2;
  const x = length < 0 ? centre + length : centre;
  const measured = `${valueText(result)}  (${targetText(result.target)})`;
  return [
    text(size.label - 12, y + 17, `${name}: ${result.against}`, 'text-anchor="end"'),
    `<rect x="${x.toFixed(1)}" y="${y + 5}" width="${Math.abs(length).toFixed(1)}" height="16" fill="${result.kept ? '#2f7d4f' : '#c2452d'}"/>`,
    text(size.label + size.chart + 12, y + 17, measured),
  ];
};

const text = (x: number, y: number, content: string, attributes = ''): string =>
  `<text x="${x}" y="${y}" ${attributes}>${escaped(content)}</text>`;

const escaped = (content: string): string =>
  content.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
