/**
 * Versioned workspaces against git, restic, borg, rsync and cp, in one run on one disk:
 *   scripts/run node bench/jvs/main.ts --fs ext4,xfs,btrfs --runs 3 [--million] [--tiny]
 * Needs root (loop mounts) and the peers' Debian packages; a peer that is not there is left out and named.
 */
import { execFileSync } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { BenchFilesystem } from './filesystem.ts';
import { peers } from './peers.ts';
import { type Measurement, measureForks, measureMillion, measurePeer, measureStart } from './rows.ts';
import { fullWorkload, tinyWorkload } from './workload.ts';

const { values } = parseArgs({
  options: {
    fs: { type: 'string', default: 'ext4,xfs,btrfs' },
    runs: { type: 'string', default: '3' },
    million: { type: 'boolean', default: false },
    tiny: { type: 'boolean', default: false },
  },
});
const runs = Number(values.runs);
const root = join(import.meta.dirname, '../..');
const imageBytes = 16 * 1024 ** 3;

const home = await mkdtemp(join(tmpdir(), 'jvs-bench-'));
await mkdir(join(home, 'bin'));
// The program itself; what bin/jvs does besides is to look whether set-up is needed.
await writeFile(
  join(home, 'bin/jvs'),
  `#!/bin/sh\nexec ${process.execPath} ${join(root, 'dist/jvs.mjs')} "$@"\n`,
);
await chmod(join(home, 'bin/jvs'), 0o755);
process.env.PATH = `${join(home, 'bin')}:${process.env.PATH}`;
process.env.HOME = home;

const isThere = (program: string): boolean => {
  try {
    execFileSync('bash', ['-c', `command -v ${program}`], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
};

const all: Measurement[] = [];
let peakMiB: number | null = null;
const missing = peers.filter(({ program }) => !isThere(program)).map(({ name }) => name);
if (missing.length > 0) process.stderr.write(`not installed, left out: ${missing.join(', ')}\n`);

try {
  const size = values.tiny ? tinyWorkload : fullWorkload;
  for (const kind of values.fs.split(',')) {
    await using filesystem = await BenchFilesystem.create(kind, home, imageBytes);
    for (const peer of peers) {
      if (missing.includes(peer.name)) continue;
      process.stderr.write(`${kind}: ${peer.name}\n`);
      all.push(...(await measurePeer(filesystem, peer, size, runs)));
    }
    if (kind === 'btrfs')
      all.push(
        ...(await measureForks(filesystem, values.tiny ? [100, 1000] : [1000, 10_000, 100_000], runs)),
      );
    if (values.million && kind === 'ext4') {
      const million = await measureMillion(filesystem, values.tiny ? 20_000 : 1_000_000, runs);
      all.push(...million.measurements);
      ({ peakMiB } = million);
    }
  }
  all.push(...(await measureStart(home, runs)));
} finally {
  await rm(home, { recursive: true, force: true });
}

const results = {
  date: new Date().toISOString(),
  processors: cpus().length,
  model: cpus()[0]?.model,
  runs,
  peakMiB,
  measurements: all,
};
await writeFile(join(import.meta.dirname, 'results.json'), `${JSON.stringify(results, null, 2)}\n`);

process.stdout.write('| filesystem | work | by | median ms | beside `cp -a` |\n|---|---|---|---|---|\n');
for (const { filesystem, work, by, medianMs } of all) {
  const base = all.find(
    (other) => other.filesystem === filesystem && other.work === work && other.by === 'cp -a',
  );
  const ratio = base ? `${(medianMs / base.medianMs).toFixed(2)} ×` : '';
  process.stdout.write(`| ${filesystem} | ${work} | ${by} | ${medianMs.toFixed(0)} | ${ratio} |\n`);
}
if (peakMiB !== null) process.stdout.write(`\npeak memory with a million files: ${peakMiB} MiB\n`);
