import { accessSync, constants, existsSync, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import type { Doctor } from '@coppice/protocol';

type Finding = Doctor['findings'][number];

const onPath = (program: string, env: NodeJS.ProcessEnv): boolean =>
  (env.PATH ?? '').split(delimiter).some((directory) => {
    try {
      accessSync(join(directory, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });

const needed = [
  ['bwrap', 'bubblewrap'],
  ['mkfs.btrfs', 'btrfs-progs'],
  ['nft', 'nftables'],
  ['ip', 'iproute2'],
] as const;

/** What can be seen of this machine without the daemon. */
export const localFindings = (env: NodeJS.ProcessEnv): Finding[] => {
  const findings: Finding[] = [];
  const error = (check: string, message: string, fix: string): void => {
    findings.push({ severity: 'error', check, message, fix });
  };
  if (process.getuid?.() !== 0) error('root', 'this user is not root', 'Run it as root.');
  const filesystems = readFileSync('/proc/filesystems', 'utf8');
  if (!/\boverlay\b/.test(filesystems)) {
    error('overlay', 'the kernel does not know overlay filesystems now', 'Load it: modprobe overlay');
  }
  if (!existsSync('/proc/self/ns/user')) {
    error('user-namespaces', 'the kernel has no user namespaces', 'Use a kernel with CONFIG_USER_NS.');
  }
  if (!existsSync('/sys/fs/cgroup')) {
    error('cgroups', 'no control groups are mounted', 'Mount cgroup2 on /sys/fs/cgroup.');
  }
  for (const [program, debianPackage] of needed) {
    const searched = { ...env, PATH: `${env.PATH ?? ''}${delimiter}/usr/sbin${delimiter}/sbin` };
    if (!onPath(program, searched)) {
      error(
        'programs',
        `${program} is not installed`,
        `apt-get install ${debianPackage}, or run \`coppice up\`.`,
      );
    }
  }
  return findings;
};
