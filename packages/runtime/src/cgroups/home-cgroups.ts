import { readdirSync, readFileSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { readCgroupFile } from './cgroup-files.ts';
import type { CgroupFreezer, CgroupHierarchy } from './cgroup-hierarchy.ts';
import { type CgroupMounts, parseCgroupMounts } from './cgroup-mounts.ts';
import { CgroupV1, FreezerV1 } from './cgroup-v1.ts';
import { CgroupV2, FreezerV2 } from './cgroup-v2.ts';
import { SandboxCgroup } from './sandbox-cgroup.ts';

const limiting = ['cpu', 'memory', 'pids'] as const;
/** In version 1 the JVM heeds no limit unless it finds these as well. */
const alsoShown = ['cpuset', 'cpuacct'] as const;

interface HomeCgroupsOptions {
  readonly mounts?: CgroupMounts;
  readonly shows?: boolean;
}

/** The cgroups of one home: `<parent>/<sandbox id>` in every hierarchy that a limit or the freezer needs. */
export class HomeCgroups {
  readonly #parent: string;
  readonly #v1: CgroupV1 | null;
  readonly #v2: CgroupV2 | null;
  readonly #freezer: CgroupFreezer;
  /** What sandboxes may see of their own groups, as options of a mount: hierarchies of version 1, or `v2`. */
  readonly shown: readonly string[];

  /** `shows`: its sandboxes have the filesystem of their cgroups, and so a group of their own in all that programs look for. */
  constructor(parent: string, { mounts = readCgroupMounts(), shows = false }: HomeCgroupsOptions = {}) {
    this.#parent = parent;
    const available = mounts.v2 === null ? [] : readControllers(mounts.v2);
    const inV2 = new Set(limiting.filter((controller) => available.includes(controller)));
    // Time is accounted and freezing done by version 2 wherever it is mounted, even without a controller.
    const wanted = mounts.v2 === null ? [...limiting, 'cpuacct', 'freezer'] : [...limiting];
    const more = shows && !inV2.has('memory') ? alsoShown : [];
    const inV1 = new Map(
      [...wanted, ...more].flatMap((controller) => {
        const mount = mounts.v1.get(controller);
        return mount === undefined || inV2.has(controller as (typeof limiting)[number])
          ? []
          : [[controller, mount]];
      }),
    );
    const missing = wanted.filter(
      (controller) => !inV1.has(controller) && !inV2.has(controller as (typeof limiting)[number]),
    );
    if (missing.length > 0) {
      throw new CoppiceError(
        'unsupported',
        `this machine lacks the cgroup controllers ${missing.join(', ')}`,
        {
          hint: 'Boot with them enabled (cgroup_enable=memory), and mount the cgroup filesystem.',
        },
      );
    }
    this.#v1 = inV1.size > 0 ? new CgroupV1(inV1) : null;
    this.#v2 = mounts.v2 === null ? null : new CgroupV2(mounts.v2, inV2);
    this.shown = inV2.has('memory') ? ['v2'] : sharedHierarchies(mounts, new Set(inV1.values()));
    this.#freezer = mounts.v2 === null ? new FreezerV1(inV1.get('freezer')!) : new FreezerV2(mounts.v2);
  }

  /** For people: where the limits are. */
  get description(): string {
    if (this.#v1 === null) return 'cgroups version 2';
    return this.#v2 === null ? 'cgroups version 1' : 'cgroups hybrid';
  }

  /** The parent's directories in version 1: a process enters groups below them before it becomes a sandbox. */
  get v1Parents(): string[] {
    return this.#v1?.directories(this.#parent) ?? [];
  }

  prepare(): void {
    for (const hierarchy of this.#hierarchies()) hierarchy.prepare(this.#parent);
  }

  group(id: string): SandboxCgroup {
    const path = join(this.#parent, id);
    return new SandboxCgroup(
      path,
      this.#hierarchies(),
      this.#freezer,
      this.#v2?.directories(path)[0] ?? null,
    );
  }

  /** Every group below the parent, in any hierarchy. */
  list(): string[] {
    const names = new Set<string>();
    for (const directory of this.#directories()) for (const name of childrenOf(directory)) names.add(name);
    return [...names].sort();
  }

  /** Removes the parent where nothing is left below it. */
  release(): void {
    for (const directory of this.#directories()) removeIfEmpty(directory);
  }

  #hierarchies(): CgroupHierarchy[] {
    return [this.#v1, this.#v2].filter((hierarchy) => hierarchy !== null);
  }

  #directories(): string[] {
    return this.#hierarchies().flatMap((hierarchy) => hierarchy.directories(this.#parent));
  }
}

/** All controllers of each mount: the kernel takes none of them alone. */
function sharedHierarchies({ v1 }: CgroupMounts, used: ReadonlySet<string>): string[] {
  return [...used].map((mount) =>
    [...v1]
      .flatMap(([name, place]) => (place === mount && !notControllers.has(name) ? [name] : []))
      .join(','),
  );
}

const notControllers = new Set(['rw', 'ro', 'xattr', 'clone_children', 'noprefix']);

function readCgroupMounts(): CgroupMounts {
  return parseCgroupMounts(readFileSync('/proc/self/mountinfo', 'utf8'));
}

function readControllers(mount: string): string[] {
  return readCgroupFile(join(mount, 'cgroup.controllers')).trim().split(' ');
}

function removeIfEmpty(directory: string): void {
  try {
    rmdirSync(directory);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code !== 'ENOENT' && code !== 'EBUSY' && code !== 'ENOTEMPTY') throw error;
  }
}

function childrenOf(directory: string): string[] {
  try {
    return readdirSync(directory, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => entry.name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}
