import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const readOr = (path: string, otherwise: string): string => {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return otherwise;
  }
};

const namesIn = (directory: string): string[] => {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
};

/** Asked of programs that a machine may lack; then there is nothing of that kind to leave behind. */
const linesOf = (command: string, ...args: string[]): string[] => {
  try {
    return execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).split('\n');
  } catch {
    return [];
  }
};

const mounts = (): string[] =>
  readOr('/proc/self/mountinfo', '')
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '');

/** At any depth, as ours lie below whatever cgroup the daemon was started in. */
const cgroupFolders = (): string[] =>
  linesOf('find', '/sys/fs/cgroup', '-type', 'd', '-name', 'coppice-*', '-prune').filter(
    (line) => line !== '',
  );

const processes = (temporary: string): string[] =>
  namesIn('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .flatMap((pid) => {
      const command = readOr(`/proc/${pid}/cmdline`, '').replaceAll('\0', ' ').trim();
      const environment = readOr(`/proc/${pid}/environ`, '').split('\0');
      let directory = '';
      try {
        directory = readlinkSync(`/proc/${pid}/cwd`);
      } catch {
        // It ended, or is not ours to look at.
      }
      const isOfThisRun =
        command.includes(temporary) ||
        directory.startsWith(temporary) ||
        environment.includes(`TMPDIR=${temporary}`);
      const isKernelOrZombie = command === '';
      return isOfThisRun && !isKernelOrZombie && Number(pid) !== process.ppid
        ? [`${pid} ${command.slice(0, 120)}`]
        : [];
    });

export type Leftovers = ReadonlySet<string>;

/**
 * What sandboxes leave in the kernel when they are not taken down. Things below the run's own temporary
 * directory are surely of this run; cgroups, namespaces and tables are told by name.
 */
export const lookAround = (temporary: string): Leftovers =>
  new Set([
    ...mounts()
      .filter((mount) => mount.startsWith(`${temporary}/`))
      .map((mount) => `mount ${mount}`),
    ...linesOf('losetup', '--list', '--noheadings', '--output', 'NAME,BACK-FILE')
      .filter((line) => line.includes(`${temporary}/`))
      .map((line) => `loop device ${line.trim().replaceAll(/\s+/g, ' ')}`),
    ...cgroupFolders().map((folder) => `cgroup ${folder}`),
    ...namesIn('/run/netns')
      .filter((name) => name.startsWith('coppice'))
      .map((name) => `network namespace ${name}`),
    ...namesIn('/sys/class/net')
      .filter((name) => /^cp[0-9a-f]{4}/.test(name))
      .map((name) => `network link ${name}`),
    ...linesOf('nft', 'list', 'tables')
      .filter((line) => line.includes(' coppice_'))
      .map((line) => `nftables ${line.trim()}`),
    ...processes(temporary).map((line) => `process ${line}`),
  ]);

/** What is there now and was not before, after giving what is still being taken down the time to go. */
export const findLeftovers = async (
  before: Leftovers,
  temporary: string,
  settleMs = 30_000,
): Promise<readonly string[]> => {
  const deadline = Date.now() + settleMs;
  for (;;) {
    const left = [...lookAround(temporary)].filter((thing) => !before.has(thing));
    if (left.length === 0 || Date.now() > deadline) return left;
    await sleep(250);
  }
};
