/** Puts the committed ratios of both benchmarks into SPECIFICATION.md, between its two marks. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type BenchResults, readResults } from '../bench/harness/results.ts';
import { valueText } from '../bench/harness/table.ts';
import { targetText } from '../bench/harness/target.ts';

const root = join(import.meta.dirname, '..');
const begin = '<!-- ratios: written by scripts/generate -->';
const end = '<!-- ratios: end -->';

const table = (heading: string, results: BenchResults | undefined): string => {
  if (results === undefined) return `### ${heading}\n\nNot measured yet.`;
  const { machine, measured_at: measuredAt } = results;
  const lines = results.rows.flatMap((row) =>
    row.not_measured === null
      ? row.results.map(
          (result) =>
            `| ${row.title} | ${result.against} | ${targetText(result.target)} | ${valueText(result)} | ${result.kept ? 'yes' : 'no'} |`,
        )
      : [`| ${row.title} | | | not measured: ${row.not_measured} | |`],
  );
  return [
    `### ${heading}`,
    '',
    `Measured ${measuredAt.slice(0, 10)} on ${machine.cpu}, ${machine.cores} cores.`,
    '',
    '| work | against | to reach | measured | kept |',
    '|---|---|---|---|---|',
    ...lines,
  ].join('\n');
};

const specification = readFileSync(join(root, 'SPECIFICATION.md'), 'utf8');
const [head, rest] = specification.split(begin);
const tail = rest?.split(end)[1];
if (head === undefined || tail === undefined) throw new Error(`SPECIFICATION.md has no ${begin} … ${end}`);
const text = [
  begin,
  '',
  table('Sandboxes (`npm run bench`)', readResults()),
  '',
  table('Workspaces (`npm run bench:workspaces`)', readResults(join(root, 'bench/jvs/results.json'))),
  '',
  end,
].join('\n');
const directory = process.argv[2] ?? root;
mkdirSync(directory, { recursive: true });
writeFileSync(join(directory, 'SPECIFICATION.md'), head + text + tail);
