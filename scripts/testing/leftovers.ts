import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RunHomes } from './run-homes.ts';

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

/** Names of kernel objects, by the key of the home that is in them. */
const homeNames = {
  cgroup: /\/coppice-([0-9a-f]{8})$/,
  namespace: /^coppice-([0-9a-f]{8})-/,
  link: /^cp([0-9a-f]{8})/,
  table: / coppice_([0-9a-f]{8})$/,
};

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

/**
 * What sandboxes leave in the kernel when they are not taken down. Only what belongs to the run: below its temporary
 * directory, or with the key of one of its homes in the name. Other daemons on the machine come and go meanwhile.
 */
export const lookAround = (temporary: string, homes: Pick<RunHomes, 'has'>): readonly string[] => {
  const isOfThisRun = (name: string, pattern: RegExp): boolean => {
    const key = pattern.exec(name)?.[1];
    return key !== undefined && homes.has(key);
  };
  return [
    ...mounts()
      .filter((mount) => mount.startsWith(`${temporary}/`))
      .map((mount) => `mount ${mount}`),
    ...linesOf('losetup', '--list', '--noheadings', '--output', 'NAME,BACK-FILE')
      .filter((line) => line.includes(`${temporary}/`))
      .map((line) => `loop device ${line.trim().replaceAll(/\s+/g, ' ')}`),
    ...cgroupFolders()
      .filter((folder) => isOfThisRun(folder, homeNames.cgroup))
      .map((folder) => `cgroup ${folder}`),
    ...namesIn('/run/netns')
      .filter((name) => isOfThisRun(name, homeNames.namespace))
      .map((name) => `network namespace ${name}`),
    ...namesIn('/sys/class/net')
      .filter((name) => isOfThisRun(name, homeNames.link))
      .map((name) => `network link ${name}`),
    ...linesOf('nft', 'list', 'tables')
      .filter((line) => isOfThisRun(line.trim(), homeNames.table))
      .map((line) => `nftables ${line.trim()}`),
    ...processes(temporary).map((line) => `process ${line}`),
  ];
};

/** What is there, after giving what is still being taken down the time to go. */
export const findLeftovers = async (
  temporary: string,
  homes: RunHomes,
  settleMs = 120_000,
): Promise<readonly string[]> => {
  const deadline = Date.now() + settleMs;
  for (;;) {
    // Before the first look too: what the kernel has told of new homes is heard meanwhile.
    await sleep(250);
    const left = lookAround(temporary, homes);
    if (left.length === 0 || Date.now() > deadline) return left;
  }
};
