/** Versioned workspaces against git, restic, borg, rsync and cp, in one run on one disk. */
import { execFileSync } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { describeMachine } from '../harness/machine.ts';
import { writePlot } from '../harness/plot.ts';
import { mergeRows, type RowResult, readResults, writeResults } from '../harness/results.ts';
import { type Finding, medianRatio } from '../harness/row.ts';
import { resultTable } from '../harness/table.ts';
import { isKept } from '../harness/target.ts';
import { comparePeers, type Work } from './compare-peers.ts';
import { BenchFilesystem } from './filesystem.ts';
import { type GitWork, gitWorks, measureGitCell } from './git-cells.ts';
import { measureForks, measureMillion, measureStart } from './rows.ts';
import { cellName, filesystems, gitCells, jvsRows } from './targets.ts';
import { fullWorkload, manyFiles, tinyWorkload } from './workload.ts';

const others = 'others';
const parts = [...gitCells.map(cellName), others];
const usage = `npm run bench:workspaces [-- [PART…] [--work 'WORK; …'] [--rounds N] [--keep] [--quick]]
  PART      only these: ${parts.join(', ')}
            FILESYSTEM/USER is jvs beside git with 50,000 files; ${others} is everything else
  --work    of the parts beside git only: ${gitWorks.join('; ')}
  --rounds  how often each work is measured (5); first snapshots and slow peers less often
  --without-synced-git
            leave out git with core.fsync=all, which takes minutes for a first snapshot
  --keep    put what was measured into bench/jvs/results.json; a run of everything always writes it
  --quick   small sizes: shows that everything runs; its numbers mean nothing and are not written`;

const { values, positionals } = parseArgs({
  options: {
    work: { type: 'string', default: gitWorks.join(';') },
    rounds: { type: 'string', default: '5' },
    'without-synced-git': { type: 'boolean', default: false },
    keep: { type: 'boolean', default: false },
    quick: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
  allowPositionals: true,
});
const rounds = Number(values.rounds);
const works = values.work.split(';').map((work) => work.trim()) as GitWork[];
const unknown = [
  ...positionals.filter((part) => !parts.includes(part)),
  ...works.filter((work) => !gitWorks.includes(work)),
];
if (values.help || !(rounds >= 1) || unknown.length > 0 || (values.quick && values.keep)) {
  if (unknown.length > 0) console.error(`no such part or work: ${unknown.join(', ')}`);
  console.error(usage);
  process.exit(values.help ? 0 : 2);
}
const wanted = (part: string): boolean => positionals.length === 0 || positionals.includes(part);
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
// A plain user must get at the program and at the filesystems.
await chmod(home, 0o755);
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

const measureOthers = async (): Promise<void> => {
  for (const kind of filesystems) {
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
};

try {
  for (const cell of gitCells.filter((one) => wanted(cellName(one)))) {
    await using filesystem = await BenchFilesystem.create(cell.kind, home, imageBytes);
    const size = quick ? tinyWorkload : manyFiles;
    const measured = await measureGitCell({
      filesystem,
      user: cell.user,
      works,
      size,
      rounds: quick ? 1 : rounds,
      withoutSyncedGit: values['without-synced-git'],
    });
    for (const [work, findings] of measured)
      for (const [peer, finding] of findings) found.set(`${cellName(cell)} ${work}: ${peer}`, finding);
  }
  if (wanted(others)) await measureOthers();
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
console.log(
  `\n${resultTable(rows.filter(({ not_measured }) => not_measured === null))}\n\n${seconds.toFixed(0)} seconds`,
);
const file = join(import.meta.dirname, 'results.json');
const whole =
  positionals.length === 0 && works.length === gitWorks.length && !quick && !values['without-synced-git'];
const earlier = values.keep ? readResults(file) : undefined;
const results = whole
  ? { measured_at: new Date().toISOString(), machine, rows }
  : earlier && { ...earlier, rows: mergeRows(earlier.rows, rows) };
if (results) {
  writeResults(results, file);
  writePlot(results, join(import.meta.dirname, 'results.svg'));
  console.log('Written: bench/jvs/results.json, bench/jvs/results.svg');
} else
  console.log('Nothing was written: a complete run, or --keep beside an earlier one, writes the results.');
