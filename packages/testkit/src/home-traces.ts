import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { homeKeyOfPath } from './home-key.ts';

/** Empty for a directory that is not there, or no longer: other homes come and go meanwhile. */
const namesIn = (directory: string): string[] => {
  try {
    return readdirSync(directory);
  } catch (error) {
    if (isGone(error)) return [];
    throw error;
  }
};

const isGone = (error: unknown): boolean =>
  ['ENOENT', 'ENOTDIR', 'ENODEV'].includes((error as NodeJS.ErrnoException).code ?? '');

/** At any depth, but never inside the group of another home. */
const cgroupsNamed = (name: string, directory: string): string[] => {
  const found: string[] = [];
  for (const child of directoriesIn(directory)) {
    if (child === name) found.push(join(directory, child));
    else if (!child.startsWith('coppice-')) found.push(...cgroupsNamed(name, join(directory, child)));
  }
  return found;
};

const directoriesIn = (directory: string): string[] => {
  try {
    const entries = readdirSync(directory, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  } catch (error) {
    if (isGone(error)) return [];
    throw error;
  }
};

const linesOf = (command: string, ...args: string[]): string[] =>
  execFileSync(command, args, { encoding: 'utf8' }).split('\n').filter(Boolean);

const isId = (name: string): boolean => name.startsWith('sb_');

/** Everything that a home has on this machine, as the kernel and the filesystem show it, not as the daemon says. */
export class HomeTraces {
  readonly #home: string;
  readonly #key: string;

  constructor(home: string) {
    this.#home = home;
    this.#key = homeKeyOfPath(home);
  }

  /** Ids of sandboxes that have a cgroup, and so a process or the place for one. */
  machines(): string[] {
    const found = new Set(this.#cgroups().flatMap((directory) => namesIn(directory).filter(isId)));
    return [...found].sort();
  }

  /** What the kernel lets a sandbox have. */
  memoryLimitBytes(id: string): number {
    const files = this.#cgroups().flatMap((directory) =>
      ['memory.max', 'memory.limit_in_bytes'].map((name) => join(directory, id, name)),
    );
    const file = files.find((path) => existsSync(path));
    if (file === undefined) throw new Error(`${id} has no cgroup that limits its memory`);
    return Number(readFileSync(file, 'utf8'));
  }

  runDirectories(): string[] {
    return namesIn(join(this.#home, 'run')).filter(isId).sort();
  }

  disks(): string[] {
    return namesIn(join(this.#home, 'pool/disks')).sort();
  }

  snapshots(): string[] {
    return namesIn(join(this.#home, 'pool/snapshots')).sort();
  }

  memories(): string[] {
    return namesIn(join(this.#home, 'pool/memory')).sort();
  }

  /** Network interfaces, namespaces and tables. */
  network(): string[] {
    const links = namesIn('/sys/class/net').filter((name) => name.startsWith(`cp${this.#key}`));
    const namespaces = namesIn('/run/netns').filter((name) => name.includes(this.#key));
    const tables = linesOf('nft', 'list', 'tables').filter((line) => line.includes(this.#key));
    return [...links, ...namespaces, ...tables];
  }

  /** What must not be there once the home is purged. */
  all(): string[] {
    const mounts = readFileSync('/proc/self/mountinfo', 'utf8')
      .split('\n')
      .map((line) => line.split(' ')[4] ?? '')
      .filter((point) => point.startsWith(`${this.#home}/`));
    const loops = linesOf('losetup', '--list', '--noheadings', '--output', 'NAME,BACK-FILE').filter((line) =>
      line.includes(`${this.#home}/`),
    );
    const files = existsSync(this.#home) ? [this.#home] : [];
    return [...this.#cgroups(), ...this.network(), ...mounts, ...loops, ...this.#processes(), ...files];
  }

  #cgroups(): string[] {
    return cgroupsNamed(`coppice-${this.#key}`, '/sys/fs/cgroup');
  }

  #processes(): string[] {
    return namesIn('/proc').filter((name) => {
      if (!/^\d+$/.test(name) || Number(name) === process.pid) return false;
      try {
        return readFileSync(`/proc/${name}/cmdline`, 'utf8').includes(this.#home);
      } catch {
        return false;
      }
    });
  }
}
