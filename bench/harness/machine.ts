import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { cpus, loadavg, release, totalmem } from 'node:os';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** What the numbers were measured on. */
export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memory_mb: number;
  readonly kernel: string;
  readonly system: string;
  /** How many processes wanted a core in the minute before; above the number of idle cores, times mean little. */
  readonly load_before: number;
  readonly versions: Readonly<Record<string, string>>;
}

const programs = {
  bwrap: ['bwrap', '--version'],
  runc: ['runc', '--version'],
  runsc: ['runsc', '--version'],
  podman: ['podman', '--version'],
  'util-linux': ['nsenter', '--version'],
  btrfs: ['btrfs', '--version'],
} as const;

export const describeMachine = async (
  peers: Readonly<Record<string, readonly [string, ...string[]]>> = programs,
): Promise<Machine> => {
  const versions: Record<string, string> = { node: process.version };
  for (const [name, [program, ...args]] of Object.entries(peers))
    versions[name] = await versionOf(program, args);
  return {
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    cores: cpus().length,
    memory_mb: Math.round(totalmem() / 2 ** 20),
    kernel: release(),
    system: /^PRETTY_NAME="?([^"\n]*)/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1] ?? 'unknown',
    load_before: loadavg()[0]!,
    versions,
  };
};

const versionOf = async (program: string, args: readonly string[]): Promise<string> => {
  try {
    const { stdout } = await run(program, args);
    return /\d[\w.~+-]*/.exec(stdout.split('\n')[0] ?? '')?.[0] ?? 'unknown';
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return 'not installed';
    throw error;
  }
};
