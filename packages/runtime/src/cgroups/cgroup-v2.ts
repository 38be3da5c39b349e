import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { MachineLimits, MachineRefusals, MachineUsage } from '../driver.ts';
import {
  makeCgroup,
  memoryInUse,
  readCgroupFile,
  readCgroupNumber,
  writeCgroupFile,
} from './cgroup-files.ts';
import {
  type CgroupFreezer,
  type CgroupHierarchy,
  type CgroupSetting,
  cpuPeriodUsec,
  cpuQuotaUsec,
} from './cgroup-hierarchy.ts';
import { killListed } from './signal-all.ts';
import { until } from './until.ts';

const deadlineMs = 30_000;

export class CgroupV2 implements CgroupHierarchy {
  readonly #mount: string;
  readonly #controllers: ReadonlySet<string>;

  /** Takes the controllers to use; they may be none, as accounting of time, freezing and killing need none. */
  constructor(mount: string, controllers: ReadonlySet<string>) {
    this.#mount = mount;
    this.#controllers = controllers;
  }

  directories(group: string): string[] {
    return [join(this.#mount, group)];
  }

  prepare(parent: string): void {
    const directory = join(this.#mount, parent);
    makeCgroup(directory);
    enable(this.#mount, this.#controllers);
    enable(directory, this.#controllers);
    this.#forbidHugePages(directory);
  }

  /** Nobody set huge pages aside for sandboxes, and no limit of memory counts them. Set on the parent, it holds for all groups in it. */
  #forbidHugePages(directory: string): void {
    const available = readCgroupFile(join(this.#mount, 'cgroup.controllers')).trim().split(' ');
    if (!available.includes('hugetlb')) return;
    enable(this.#mount, new Set(['hugetlb']));
    for (const name of readdirSync(directory))
      if (/^hugetlb\..*\.max$/.test(name)) writeCgroupFile(join(directory, name), '0');
  }

  settings(group: string, limits: MachineLimits): CgroupSetting[] {
    const directory = join(this.#mount, group);
    const settings: CgroupSetting[] = [];
    const set = (name: string, value: string) => settings.push({ file: join(directory, name), value });
    if (this.#controllers.has('cpu')) set('cpu.max', `${cpuQuotaUsec(limits.cpus)} ${cpuPeriodUsec}`);
    if (this.#controllers.has('memory')) {
      set('memory.max', String(limits.memoryBytes));
      set('memory.swap.max', '0');
    }
    if (this.#controllers.has('pids')) set('pids.max', String(limits.pids));
    return settings;
  }

  change(group: string, limits: MachineLimits): void {
    // Version 2 would take the limit and kill; version 1 refuses, and so does this.
    if ((this.usage(group).memoryBytes ?? 0) > limits.memoryBytes) throw memoryInUse(limits.memoryBytes);
    for (const { file, value } of this.settings(group, limits)) writeCgroupFile(file, value);
  }

  refusals(group: string): Partial<MachineRefusals> {
    const directory = join(this.#mount, group);
    return {
      ...(this.#controllers.has('memory')
        ? { oomKills: readCgroupNumber(join(directory, 'memory.events'), 'oom_kill') }
        : {}),
      ...(this.#controllers.has('pids')
        ? { pidsRefused: readCgroupNumber(join(directory, 'pids.events'), 'max') }
        : {}),
    };
  }

  usage(group: string): Partial<MachineUsage> {
    const directory = join(this.#mount, group);
    const memory = this.#controllers.has('memory')
      ? {
          memoryBytes: Math.max(
            0,
            readCgroupNumber(join(directory, 'memory.current')) -
              readCgroupNumber(join(directory, 'memory.stat'), 'inactive_file'),
          ),
          oomKills: readCgroupNumber(join(directory, 'memory.events'), 'oom_kill'),
        }
      : {};
    const pids = this.#controllers.has('pids')
      ? { pids: readCgroupNumber(join(directory, 'pids.current')) }
      : {};
    return { cpuUsec: readCgroupNumber(join(directory, 'cpu.stat'), 'usage_usec'), ...memory, ...pids };
  }
}

function enable(directory: string, controllers: ReadonlySet<string>): void {
  const file = join(directory, 'cgroup.subtree_control');
  const enabled = new Set(readCgroupFile(file).trim().split(' '));
  const missing = [...controllers].filter((controller) => !enabled.has(controller));
  if (missing.length > 0) writeCgroupFile(file, missing.map((controller) => `+${controller}`).join(' '));
}

export class FreezerV2 implements CgroupFreezer {
  readonly #mount: string;

  constructor(mount: string) {
    this.#mount = mount;
  }

  directory(group: string): string {
    return join(this.#mount, group);
  }

  async freeze(group: string): Promise<void> {
    const directory = join(this.#mount, group);
    writeCgroupFile(join(directory, 'cgroup.freeze'), '1');
    try {
      const events = join(directory, 'cgroup.events');
      await until(`freezing ${group}`, deadlineMs, () => readCgroupNumber(events, 'frozen') === 1);
    } catch (error) {
      await this.thaw(group);
      throw error;
    }
  }

  async thaw(group: string): Promise<void> {
    const directory = join(this.#mount, group);
    // Gone, or not told to stand still.
    if (readCgroupNumber(join(directory, 'cgroup.freeze')) === 0) return;
    writeCgroupFile(join(directory, 'cgroup.freeze'), '0');
    const events = join(directory, 'cgroup.events');
    await until(`thawing ${group}`, deadlineMs, () => readCgroupNumber(events, 'frozen') === 0);
  }

  async kill(group: string, isOver = () => false): Promise<void> {
    const directory = join(this.#mount, group);
    const events = join(directory, 'cgroup.events');
    // Also when the group is gone. Each write waits for whatever else is done to cgroups on the machine; a look does not.
    if (readCgroupNumber(events, 'populated') === 0) return;
    // Takes all at once, those being born included; frozen processes die too.
    writeCgroupFile(join(directory, 'cgroup.kill'), '1');
    await until(`killing every process of ${group}`, deadlineMs, () => {
      if (isOver() || readCgroupNumber(events, 'populated') === 0) return true;
      killListed(join(directory, 'cgroup.procs'));
      return false;
    });
  }
}
