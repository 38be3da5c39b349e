import { rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import type { MachineLimits, MachineRefusals, MachineUsage } from '../driver.ts';
import type { CgroupFreezer, CgroupHierarchy, CgroupSetting } from './cgroup-hierarchy.ts';
import { killListed } from './signal-all.ts';
import { until } from './until.ts';

const removeDeadlineMs = 30_000;

/** The cgroup of one sandbox, in as many hierarchies as this machine spreads its controllers over. */
export class SandboxCgroup {
  /** The directory in version 2, where a process can be born; null where only version 1 is mounted. */
  readonly v2Directory: string | null;
  readonly #path: string;
  readonly #hierarchies: readonly CgroupHierarchy[];
  readonly #freezer: CgroupFreezer;

  constructor(
    path: string,
    hierarchies: readonly CgroupHierarchy[],
    freezer: CgroupFreezer,
    v2Directory: string | null,
  ) {
    this.#path = path;
    this.#hierarchies = hierarchies;
    this.#freezer = freezer;
    this.v2Directory = v2Directory;
  }

  get directories(): string[] {
    return this.#hierarchies.flatMap((hierarchy) => hierarchy.directories(this.#path));
  }

  settings(limits: MachineLimits): CgroupSetting[] {
    return this.#hierarchies.flatMap((hierarchy) => hierarchy.settings(this.#path, limits));
  }

  setLimits(limits: MachineLimits): void {
    for (const hierarchy of this.#hierarchies) hierarchy.change(this.#path, limits);
  }

  refusals(): MachineRefusals {
    const nothing: MachineRefusals = { oomKills: 0, pidsRefused: 0 };
    return Object.assign(nothing, ...this.#hierarchies.map((hierarchy) => hierarchy.refusals(this.#path)));
  }

  usage(): MachineUsage {
    const nothing: MachineUsage = { memoryBytes: 0, cpuUsec: 0, pids: 0, oomKills: 0 };
    return Object.assign(nothing, ...this.#hierarchies.map((hierarchy) => hierarchy.usage(this.#path)));
  }

  /** Names every thread in it. */
  get tasksFile(): string {
    return this.v2Directory === null
      ? join(this.directories[0]!, 'tasks')
      : join(this.v2Directory, 'cgroup.threads');
  }

  get freezerDirectory(): string {
    return this.#freezer.directory(this.#path);
  }

  freeze(): Promise<void> {
    return this.#freezer.freeze(this.#path);
  }

  thaw(): Promise<void> {
    return this.#freezer.thaw(this.#path);
  }

  /** Until none is left, or nobody wants it any more: the group may then be that of the next machine. */
  kill(isOver?: () => boolean): Promise<void> {
    return this.#freezer.kill(this.#path, isOver);
  }

  /** Removes it from every hierarchy once its processes are gone. Idempotent. */
  async remove(): Promise<void> {
    for (const directory of this.directories) {
      await until(`removing the cgroup ${directory}`, removeDeadlineMs, () => removed(directory));
    }
  }
}

function removed(directory: string): boolean {
  try {
    rmdirSync(directory);
    return true;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT') return true;
    // A process that has been killed may still be on its way out, or one that was just being started may have come in since.
    if (code === 'EBUSY') {
      killListed(join(directory, 'cgroup.procs'));
      return false;
    }
    throw new CoppiceError('internal', `removing the cgroup ${directory} failed with ${code}`, {
      cause: error,
    });
  }
}
