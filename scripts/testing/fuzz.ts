/** `scripts/fuzz`: runs one fuzzer after another. Each starts from the inputs that reached new code in earlier runs. */
import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Fuzzer } from './fuzzer.ts';

const { values, positionals } = parseArgs({
  options: { seconds: { type: 'string', default: '60' } },
  allowPositionals: true,
});
const seconds = Number(values.seconds);
const all = Fuzzer.all();
const unknown = positionals.filter((name) => !all.some((fuzzer) => fuzzer.name === name));
const missing = Fuzzer.whyNone();
if (missing !== undefined || unknown.length > 0 || !Number.isInteger(seconds) || seconds < 1) {
  const names = all.map(({ name }) => name).join(', ');
  console.error(missing ?? `usage: scripts/fuzz [--seconds N] [NAME…], where NAME is one of ${names}`);
  process.exit(2);
}

for (const fuzzer of all) {
  if (positionals.length > 0 && !positionals.includes(fuzzer.name)) continue;
  const [foundDir, grownDir] = ['found', 'grown'].map((name) => join('.tools/fuzz', fuzzer.name, name)) as [
    string,
    string,
  ];
  for (const directory of [foundDir, grownDir]) mkdirSync(directory, { recursive: true });
  const { passed, output } = await fuzzer.run({ seconds, foundDir, grownDir });
  const tried = /number_of_executed_units: (\d+)/.exec(output)?.[1] ?? '?';
  console.log(`${passed ? 'passed' : 'BROKEN'}  ${fuzzer.name}: ${tried} inputs`);
  if (passed) continue;
  process.exitCode = 1;
  console.log(
    `${output}\nfound: ${readdirSync(foundDir)
      .map((name) => join(foundDir, name))
      .join(', ')}`,
  );
}
