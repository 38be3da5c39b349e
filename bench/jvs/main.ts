/** Versioned workspaces against git, restic, borg, rsync and cp, in one run on one disk. */
import { execFileSync } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { describeMachine } from '../harness/machine.ts';
import { writePlot } from '../harness/plot.ts';
import { type RowResult, writeResults } from '../harness/results.ts';
import { type Finding, medianRatio } from '../harness/row.ts';
import { resultTable } from '../harness/table.ts';
import { isKept } from '../harness/target.ts';
import { comparePeers, type Work } from './compare-peers.ts';
import { BenchFilesystem } from './filesystem.ts';
import { measureForks, measureMillion, measureStart } from './rows.ts';
import { filesystems, jvsRows } from './targets.ts';
import { fullWorkload, tinyWorkload } from './workload.ts';

const usage = `npm run bench:workspaces [-- [--quick] [--fs ext4,xfs,btrfs] [--rounds N]]
  --fs      only these filesystems; a run with fewer writes no results
  --quick   small sizes: shows that everything runs, its numbers mean nothing and are not written
  --rounds  how often each work is measured (5); first snapshots and slow peers less often`;

const { values } = parseArgs({
  options: {
    fs: { type: 'string', default: filesystems.join(',') },
    rounds: { type: 'string', default: '5' },
    quick: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
const kinds = values.fs.split(',');
const rounds = Number(values.rounds);
if (
  values.help ||
  !(rounds >= 1) ||
  !kinds.every((kind) => (filesystems as readonly string[]).includes(kind))
) {
  console.error(usage);
  process.exit(values.help ? 0 : 2);
}
const { quick } = values;
const root = join(import.meta.dirname, '../..');
const imageBytes = 32 * 1024 ** 3;

const machine = await describeMachine({
  cp: ['cp', '--version'],
  rsync: ['rsync', '--version'],
  git: ['git', '--version'],
  restic: ['restic', 'version'],
  borg: ['borg', '--version'],
});
console.log(
  `${machine.cpu}, ${machine.cores} cores, ${machine.memory_mb} MiB, Linux ${machine.kernel}, ${machine.system}`,
);
if (machine.load_before > machine.cores / 2)
  console.log(`The machine is busy (load ${machine.load_before.toFixed(1)}): times mean little.`);

const home = await mkdtemp(join(tmpdir(), 'jvs-bench-'));
await mkdir(join(home, 'bin'));
// The program itself; what bin/jvs does besides is to look whether set-up is needed.
await writeFile(
  join(home, 'bin/jvs'),
  `#!/bin/sh\nexec ${join(root, 'native/build/coppice-tree')} jvs ${process.execPath} ${join(root, 'dist/jvs.mjs')} "$@"\n`,
);
await chmod(join(home, 'bin/jvs'), 0o755);
process.env.PATH = `${join(home, 'bin')}:${process.env.PATH}`;
process.env.HOME = home;
execFileSync('jvs', ['--version'], { stdio: 'ignore' });

const startedMs = performance.now();
const found = new Map<string, Finding>();
try {
  for (const kind of kinds) {
    await using filesystem = await BenchFilesystem.create(kind, home, imageBytes);
    const compared = await comparePeers(filesystem, quick ? tinyWorkload : fullWorkload, quick ? 2 : rounds);
    for (const work of ['first', 'again', 'restore'] as Work[]) {
      const { jvs, ...others } = compared[work];
      for (const [peer, summary] of Object.entries(others))
        if (jvs) found.set(`${kind} ${work}: ${peer}`, medianRatio(jvs, summary));
    }
    if (kind === 'btrfs')
      found.set(
        'fork: 1,000 files',
        await measureForks(filesystem, quick ? [100, 1000] : [1000, 100_000], rounds * 2),
      );
    if (kind === 'ext4') {
      const { find, memory } = await measureMillion(filesystem, quick ? 20_000 : 1_000_000, rounds);
      found.set('million: find', find);
      found.set('million: memory', memory);
    }
  }
  found.set('start: node -e 0', await measureStart(home, rounds));
} finally {
  await rm(home, { recursive: true, force: true });
}

const seconds = (performance.now() - startedMs) / 1000;
const rows: RowResult[] = jvsRows.map(({ name, title, targets }) => {
  const results = Object.entries(targets).flatMap(([against, target]) => {
    const finding = found.get(`${name}: ${against}`);
    return finding ? [{ against, target, kept: isKept(target, finding.value), ...finding }] : [];
  });
  return { name, title, seconds: 0, not_measured: results.length > 0 ? null : 'not asked for', results };
});
console.log(`\n${resultTable(rows)}\n\n${seconds.toFixed(0)} seconds`);
if (!quick && kinds.length === filesystems.length) {
  const results = { measured_at: new Date().toISOString(), machine, rows };
  writeResults(results, join(import.meta.dirname, 'results.json'));
  writePlot(results, join(import.meta.dirname, 'results.svg'));
  console.log('Written: bench/jvs/results.json, bench/jvs/results.svg');
}
