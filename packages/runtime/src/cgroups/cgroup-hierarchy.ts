import type { MachineLimits, MachineRefusals, MachineUsage } from '../driver.ts';

/** A file of a cgroup and what to write to it. */
export interface CgroupSetting {
  readonly file: string;
  readonly value: string;
}

/**
 * One version of the kernel's cgroups and the controllers it has on this machine. A group is named by its path below
 * the root of the hierarchy and is the same directory in each of them.
 */
export interface CgroupHierarchy {
  /** The directories that together are the group. */
  directories(group: string): string[];
  /** Makes the parent of groups; idempotent. */
  prepare(parent: string): void;
  /** In the order in which a new group takes them. */
  settings(group: string, limits: MachineLimits): CgroupSetting[];
  /** Applies them to a group that runs already. */
  change(group: string, limits: MachineLimits): void;
  /** Only what the controllers here can tell. */
  refusals(group: string): Partial<MachineRefusals>;
  usage(group: string): Partial<MachineUsage>;
}

/** What acts on every process of a group at once. Version 2 has it without any controller. */
export interface CgroupFreezer {
  /** Where the kernel's own switch for it is. */
  directory(group: string): string;
  /** Returns when every process stands still. */
  freeze(group: string): Promise<void>;
  /** Idempotent. */
  thaw(group: string): Promise<void>;
  /** Kills every process of it, frozen ones as well; a group that does not exist has none. */
  kill(group: string, isOver?: () => boolean): Promise<void>;
}

export const cpuPeriodUsec = 100_000;

export const cpuQuotaUsec = (cpus: number): number => Math.max(1000, Math.round(cpus * cpuPeriodUsec));
