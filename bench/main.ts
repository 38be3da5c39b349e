import { parseArgs } from 'node:util';
import { describeMachine } from './harness/machine.ts';
import { writePlot } from './harness/plot.ts';
import { type BenchResults, type RowResult, readResults, writeResults } from './harness/results.ts';
import { runRow } from './harness/run-row.ts';
import { resultTable } from './harness/table.ts';
import { rows } from './rows/rows.ts';

const usage = `npm run bench [-- [--quick] [--keep] [ROW…]]
  ROW       only these: ${rows.map((row) => row.name).join(', ')}
  --quick   few rounds and small sizes: shows that a row runs, its numbers mean nothing
  --keep    put the rows that were named into bench/results.json; a run of all rows always writes it`;

const { values, positionals } = parseArgs({
  options: { quick: { type: 'boolean' }, keep: { type: 'boolean' }, help: { type: 'boolean' } },
  allowPositionals: true,
});
const quick = values.quick ?? false;
const unknown = positionals.filter((name) => !rows.some((row) => row.name === name));
if (values.help) {
  console.log(usage);
  process.exit(0);
}
if (unknown.length > 0 || (quick && values.keep)) {
  console.error(quick && values.keep ? '--quick has nothing to keep' : `no such row: ${unknown.join(', ')}`);
  console.error(usage);
  process.exit(2);
}
const chosen = positionals.length === 0 ? rows : rows.filter((row) => positionals.includes(row.name));

const stop = new AbortController();
// What runs is taken down in order; a second signal ends it at once.
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => stop.abort(new Error('stopped')));

const machine = await describeMachine();
console.log(
  `${machine.cpu}, ${machine.cores} cores, ${machine.memory_mb} MiB, Linux ${machine.kernel}, ${machine.system}`,
);
console.log(
  Object.entries(machine.versions)
    .map(([name, version]) => `${name} ${version}`)
    .join(', '),
);
if (machine.load_before > machine.cores / 2)
  console.log(`The machine is busy (load ${machine.load_before.toFixed(1)}): times mean little.`);

const measured: RowResult[] = [];
let broken = 0;
for (const row of chosen) {
  if (stop.signal.aborted) break;
  process.stderr.write(`${row.name}: ${row.title} … `);
  try {
    const result = await runRow(row, { quick, signal: stop.signal });
    measured.push(result);
    process.stderr.write(`${result.seconds.toFixed(0)} s\n`);
  } catch (error) {
    if (stop.signal.aborted) {
      process.stderr.write('stopped\n');
      break;
    }
    broken += 1;
    process.stderr.write('failed\n');
    console.error(error);
  }
}
if (measured.length > 0) console.log(`\n${resultTable(measured)}`);

const whole = chosen === rows && broken === 0 && !stop.signal.aborted && !quick;
const earlier = values.keep && broken === 0 ? readResults() : undefined;
const results: BenchResults | undefined = whole
  ? { measured_at: new Date().toISOString(), machine, rows: measured }
  : earlier && {
      ...earlier,
      // In the order of the rows; one that is new has no earlier result.
      rows: rows.flatMap(({ name }) => {
        const found = [...measured, ...earlier.rows].find((row) => row.name === name);
        return found === undefined ? [] : [found];
      }),
    };
if (results !== undefined) {
  writeResults(results);
  writePlot(results);
  console.log('\nWritten: bench/results.json, bench/results.svg');
} else {
  console.log(
    '\nNothing was written: a complete run of all rows, or --keep beside an earlier one, writes the results.',
  );
}
process.exitCode = broken > 0 || stop.signal.aborted ? 1 : 0;
