import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
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

/**
 * How much of the memory limit network buffers may take. Version 1 counts them apart from other memory, so a sandbox can use this
 * much on top of its limit. Without it they have no limit.
 */
const networkShare = 1 / 4;
const networkLimit = 'memory.kmem.tcp.limit_in_bytes';

export class CgroupV1 implements CgroupHierarchy {
  readonly #mounts: ReadonlyMap<string, string>;
  /** The memory limits that this kernel knows, each with its share of the sandbox's limit. */
  readonly #memoryLimits: readonly { readonly name: string; readonly share: number }[];

  /** Takes the controllers to use, with their mount points. */
  constructor(mounts: ReadonlyMap<string, string>) {
    this.#mounts = mounts;
    const root = mounts.get('memory') ?? '';
    // The kernel may have been built without the last two.
    this.#memoryLimits = [
      { name: 'memory.limit_in_bytes', share: 1 },
      { name: 'memory.memsw.limit_in_bytes', share: 1 },
      { name: networkLimit, share: networkShare },
    ].filter(({ name }) => existsSync(join(root, name)));
  }

  directories(group: string): string[] {
    return [...new Set(this.#mounts.values())].map((mount) => join(mount, group));
  }

  prepare(parent: string): void {
    for (const directory of this.directories(parent)) makeCgroup(directory);
    const memory = this.#in('memory', parent);
    // With the first such limit the kernel patches its own code, which stops every processor. Better here than at a start.
    if (memory !== undefined && this.#memoryLimits.some(({ name }) => name === networkLimit))
      writeCgroupFile(join(memory, networkLimit), '-1');
  }

  settings(group: string, limits: MachineLimits): CgroupSetting[] {
    return [...this.#cpu(group, limits), ...this.#memory(group, limits), ...this.#pids(group, limits)];
  }

  change(group: string, limits: MachineLimits): void {
    const memory = this.#memory(group, limits);
    const first = memory[0];
    // Memory with swap may never be less than memory alone: what grows, grows from the outer one.
    if (first !== undefined && readCgroupNumber(first.file) < limits.memoryBytes) memory.reverse();
    // Memory first: it alone can be refused, and then nothing has changed.
    writeAllOrNone(memory, limits.memoryBytes);
    for (const { file, value } of [...this.#cpu(group, limits), ...this.#pids(group, limits)])
      writeCgroupFile(file, value);
  }

  refusals(group: string): Partial<MachineRefusals> {
    const memory = this.#in('memory', group);
    const pids = this.#in('pids', group);
    return {
      ...(memory === undefined
        ? {}
        : { oomKills: readCgroupNumber(join(memory, 'memory.oom_control'), 'oom_kill') }),
      ...(pids === undefined ? {} : { pidsRefused: readCgroupNumber(join(pids, 'pids.events'), 'max') }),
    };
  }

  usage(group: string): Partial<MachineUsage> {
    const memory = this.#in('memory', group);
    const pids = this.#in('pids', group);
    const cpuacct = this.#in('cpuacct', group);
    return {
      ...(memory === undefined ? {} : memoryUsage(memory)),
      ...(pids === undefined ? {} : { pids: readCgroupNumber(join(pids, 'pids.current')) }),
      ...(cpuacct === undefined
        ? {}
        : { cpuUsec: Math.floor(readCgroupNumber(join(cpuacct, 'cpuacct.usage')) / 1000) }),
    };
  }

  #in(controller: string, group: string): string | undefined {
    const mount = this.#mounts.get(controller);
    return mount === undefined ? undefined : join(mount, group);
  }

  #cpu(group: string, limits: MachineLimits): CgroupSetting[] {
    const directory = this.#in('cpu', group);
    if (directory === undefined) return [];
    return [
      { file: join(directory, 'cpu.cfs_period_us'), value: String(cpuPeriodUsec) },
      { file: join(directory, 'cpu.cfs_quota_us'), value: String(cpuQuotaUsec(limits.cpus)) },
    ];
  }

  #memory(group: string, limits: MachineLimits): CgroupSetting[] {
    const directory = this.#in('memory', group);
    if (directory === undefined) return [];
    return this.#memoryLimits.map(({ name, share }) => ({
      file: join(directory, name),
      value: String(Math.floor(limits.memoryBytes * share)),
    }));
  }

  #pids(group: string, limits: MachineLimits): CgroupSetting[] {
    const directory = this.#in('pids', group);
    return directory === undefined ? [] : [{ file: join(directory, 'pids.max'), value: String(limits.pids) }];
  }
}

function writeAllOrNone(settings: readonly CgroupSetting[], memoryBytes: number): void {
  const before: CgroupSetting[] = [];
  try {
    for (const { file, value } of settings) {
      const previous = readCgroupFile(file).trim();
      writeCgroupFile(file, value);
      before.unshift({ file, value: previous });
    }
  } catch (error) {
    for (const { file, value } of before) writeCgroupFile(file, value);
    throw error instanceof CoppiceError && error.code === 'wrong_state'
      ? memoryInUse(memoryBytes, error)
      : error;
  }
}

/** File pages that the kernel would drop first are no need of the sandbox's. */
function memoryUsage(directory: string): Pick<MachineUsage, 'memoryBytes' | 'oomKills'> {
  const used = readCgroupNumber(join(directory, 'memory.usage_in_bytes'));
  const droppable = readCgroupNumber(join(directory, 'memory.stat'), 'total_inactive_file');
  return {
    memoryBytes: Math.max(0, used - droppable),
    oomKills: readCgroupNumber(join(directory, 'memory.oom_control'), 'oom_kill'),
  };
}

export class FreezerV1 implements CgroupFreezer {
  readonly #mount: string;

  constructor(mount: string) {
    this.#mount = mount;
  }

  directory(group: string): string {
    return join(this.#mount, group);
  }

  async freeze(group: string): Promise<void> {
    const file = join(this.#mount, group, 'freezer.state');
    try {
      await until(`freezing ${group}`, deadlineMs, () => {
        // Written each time: a process that forked meanwhile is caught by the next write only.
        writeCgroupFile(file, 'FROZEN');
        return readCgroupFile(file).trim() === 'FROZEN';
      });
    } catch (error) {
      await this.thaw(group);
      throw error;
    }
  }

  async thaw(group: string): Promise<void> {
    const file = join(this.#mount, group, 'freezer.state');
    if (readCgroupFile(file) !== '') writeCgroupFile(file, 'THAWED');
  }

  async kill(group: string, isOver = () => false): Promise<void> {
    const state = join(this.#mount, group, 'freezer.state');
    const procs = join(this.#mount, group, 'cgroup.procs');
    await until(`killing every process of ${group}`, deadlineMs, () => {
      // Frozen first, so that nothing forks between the list and the signals; they take effect on the thaw.
      if (isOver() || readCgroupFile(state) === '') return true;
      writeCgroupFile(state, 'FROZEN');
      const none = killListed(procs);
      writeCgroupFile(state, 'THAWED');
      return none;
    });
  }
}
