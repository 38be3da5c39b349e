import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type {
  Driver,
  ExitStatus,
  Guest,
  ImageRoot,
  Machine,
  MachineSpec,
  ProcessRequest,
} from '@coppice/runtime';
import { homeKey } from './home-key.ts';
import { PlainDirectory } from './plain-directory.ts';

export type MakeDriver = (home: string, homeKey: string) => Driver;

export interface RunResult extends ExitStatus {
  readonly stdout: string;
  readonly stderr: string;
}

const mebibyte = 1 << 20;

/** A home of its own for one test, with drivers, disks and machines that are gone when it is disposed of. */
export class DriverWorkbench {
  readonly home: string;
  readonly homeKey: string;
  driver: Driver;
  readonly #image: string;
  readonly #makeDriver: MakeDriver;
  #made = 0;

  readonly #directory: PlainDirectory;

  private constructor(directory: PlainDirectory, image: string, makeDriver: MakeDriver) {
    this.#directory = directory;
    const home = directory.path;
    this.home = home;
    this.homeKey = homeKey(home);
    this.#image = image;
    this.#makeDriver = makeDriver;
    this.driver = makeDriver(home, this.homeKey);
  }

  static async open(image: string, makeDriver: MakeDriver): Promise<DriverWorkbench> {
    return new DriverWorkbench(await PlainDirectory.make('coppice-driver-'), image, makeDriver);
  }

  /** The spec of a new sandbox with an empty disk. */
  spec(changes: Partial<MachineSpec> = {}): MachineSpec {
    const number = ++this.#made;
    const diskDir = join(this.home, 'disks', String(number));
    mkdirSync(join(diskDir, 'upper'), { recursive: true });
    mkdirSync(join(diskDir, 'work'));
    return {
      id: `sb_test${this.homeKey}${number}`,
      hostname: `test-${number}`,
      image: imageRootOf(this.#image),
      diskDir,
      limits: { cpus: 2, memoryBytes: 512 * mebibyte, pids: 256 },
      ...changes,
    };
  }

  start(changes: Partial<MachineSpec> = {}): Promise<Machine> {
    return this.driver.start(this.spec(changes));
  }

  /** As when the daemon is started anew: the driver forgets, the sandboxes run on. */
  async renewDriver(): Promise<Driver> {
    await this.driver.close();
    this.driver = this.#makeDriver(this.home, this.homeKey);
    return this.driver;
  }

  /** Processes and cgroups on the host that carry an id, and the run directory: empty when nothing of the sandbox is left. */
  remains(id: string): string[] {
    const mark = `coppice-${this.homeKey}/${id}`;
    const processes = readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .filter((pid) => readIfThere(`/proc/${pid}/cgroup`).includes(mark))
      // A dead one that its parent, perhaps the host's own init, has not looked at yet holds nothing.
      .filter((pid) => !/^State:\s+[ZX]/m.test(readIfThere(`/proc/${pid}/status`)))
      .map((pid) => `process ${pid}`);
    const mounts = readFileSync('/proc/self/mountinfo', 'utf8')
      .split('\n')
      .filter((line) => line.includes(id))
      .map((line) => `mount ${line}`);
    const cgroups = cgroupDirectories(mark).map((directory) => `cgroup ${directory}`);
    const run = listIfThere(join(this.home, 'run')).filter((name) => name === id);
    return [...processes, ...mounts, ...cgroups, ...run.map((name) => `run directory ${name}`)];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.driver.sweep(new Set());
    } finally {
      await this.driver.close();
      await this.#directory[Symbol.asyncDispose]();
    }
  }
}

/** An image of one directory. */
export const imageRootOf = (directory: string): ImageRoot => ({
  directory: dirname(directory),
  layers: [basename(directory)],
});

/** Runs a program in a sandbox to its end. */
export async function runIn(
  guest: Guest,
  argv: readonly [string, ...string[]],
  options: Omit<ProcessRequest, 'argv'> = {},
): Promise<RunResult> {
  const child = await guest.exec({ argv, ...options });
  const texts = { stdout: '', stderr: '' };
  for await (const { stream, data } of child.output) texts[stream] += data.toString('utf8');
  return { ...(await child.exit), ...texts };
}

/** Runs a line of shell in a sandbox to its end. */
export const shellIn = (guest: Guest, script: string, options: Omit<ProcessRequest, 'argv'> = {}) =>
  runIn(guest, ['/bin/sh', '-c', script], options);

/** Waits for a state that is bound to come; the deadline is for a broken driver only. */
export async function eventually(
  what: string,
  reached: () => boolean | Promise<boolean>,
  deadlineMs = 90_000,
): Promise<void> {
  const giveUpAt = performance.now() + deadlineMs;
  while (!(await reached())) {
    if (performance.now() > giveUpAt) throw new Error(`waited in vain: ${what}`);
    await sleep(5);
  }
}

function cgroupDirectories(mark: string): string[] {
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .filter((line) => / - cgroup2? /.test(line))
    .map((line) => line.split(' ')[4]!);
  return mounts.map((mount) => join(mount, mark)).filter((directory) => listIfThere(directory).length > 0);
}

function readIfThere(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    // The process ended between the list and the look.
    return '';
  }
}

function listIfThere(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}
