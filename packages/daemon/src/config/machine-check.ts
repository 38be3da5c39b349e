import { existsSync, readFileSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol';

interface Need {
  readonly what: string;
  readonly met: () => boolean;
  readonly fix: string;
}

const read = (path: string): string => {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
};

const kernelKnows = (filesystem: string): boolean =>
  new RegExp(`\\b${filesystem}$`, 'm').test(read('/proc/filesystems')) || moduleExists(filesystem);

/** Not loaded yet, but mounting loads it. */
function moduleExists(name: string): boolean {
  const release = read('/proc/sys/kernel/osrelease').trim();
  return read(`/lib/modules/${release}/modules.dep`).includes(`/${name}.ko`);
}

const needs: readonly Need[] = [
  {
    what: 'root',
    met: () => process.getuid?.() === 0,
    fix: 'Run it as root: sudo bin/coppice up.',
  },
  {
    what: 'overlay filesystem in the kernel',
    met: () => kernelKnows('overlay'),
    fix: 'Use a kernel with CONFIG_OVERLAY_FS, or load it: modprobe overlay.',
  },
  {
    what: 'user namespaces',
    met: () => existsSync('/proc/self/ns/user') && read('/proc/sys/user/max_user_namespaces').trim() !== '0',
    fix: 'Allow them: sysctl user.max_user_namespaces=10000.',
  },
  {
    what: 'control groups',
    met: () => / cgroup2? /.test(read('/proc/self/mountinfo')),
    fix: 'Mount them at /sys/fs/cgroup, as systemd does.',
  },
];

/** Refuses a machine that cannot do it, with all that is missing at once. */
export function checkMachine(): void {
  const missing = needs.filter((need) => !need.met());
  if (missing.length === 0) return;
  throw new CoppiceError(
    'unsupported',
    `this machine lacks: ${missing.map((need) => need.what).join(', ')}`,
    {
      hint: missing.map((need) => need.fix).join(' '),
      details: { missing: missing.map((need) => need.what) },
    },
  );
}
