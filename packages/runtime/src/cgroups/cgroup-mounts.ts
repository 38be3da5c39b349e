/** Where the kernel shows its cgroup hierarchies. In a hybrid set-up each controller is in one of the two versions. */
export interface CgroupMounts {
  /** Version 1: the mount point of each controller; several may share one. */
  readonly v1: ReadonlyMap<string, string>;
  readonly v2: string | null;
}

/** Reads the text of /proc/self/mountinfo. */
export function parseCgroupMounts(mountinfo: string): CgroupMounts {
  const v1 = new Map<string, string>();
  let v2: string | null = null;
  for (const line of mountinfo.split('\n')) {
    const [before, after] = line.split(' - ');
    const mountPoint = before?.split(' ')[4];
    const [type, , options] = after?.split(' ') ?? [];
    if (mountPoint === undefined) continue;
    if (type === 'cgroup2') v2 ??= mountPoint;
    if (type !== 'cgroup') continue;
    for (const option of options?.split(',') ?? []) if (!v1.has(option)) v1.set(option, mountPoint);
  }
  return { v1, v2 };
}
