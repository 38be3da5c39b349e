import { mkdirSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import type { MachineSpec } from '../../driver.ts';

/** Where the agent stands inside: on a filesystem of memory, so that nothing of it reaches the disk. */
export const agentInside = '/run/coppice-agent';

/**
 * What the agent may do, and root inside but for the last: the agent names a fork anew, and takes that right from
 * whatever it starts. Nothing reaches past the sandbox's own processes and files.
 */
const capabilities = [
  'CAP_CHOWN',
  'CAP_DAC_OVERRIDE',
  'CAP_FOWNER',
  'CAP_FSETID',
  'CAP_KILL',
  'CAP_NET_BIND_SERVICE',
  'CAP_SETFCAP',
  'CAP_SETGID',
  'CAP_SETPCAP',
  'CAP_SETUID',
  'CAP_SYS_CHROOT',
  'CAP_SYS_ADMIN',
];

const family = { inet: 2, inet6: 10, packet: 17 };
const kindMask = 0xf;
const raw = 3;

/**
 * Nobody inside makes packets of its own. The capability for it is not enough to withhold: root of a user namespace that a process
 * makes has it, and gVisor asks for no more.
 */
const seccomp = {
  defaultAction: 'SCMP_ACT_ALLOW',
  architectures: [process.arch === 'arm64' ? 'SCMP_ARCH_AARCH64' : 'SCMP_ARCH_X86_64'],
  syscalls: [
    ...[family.inet, family.inet6].map((domain) => [
      { index: 0, value: domain, op: 'SCMP_CMP_EQ' },
      { index: 1, value: kindMask, valueTwo: raw, op: 'SCMP_CMP_MASKED_EQ' },
    ]),
    [{ index: 0, value: family.packet, op: 'SCMP_CMP_EQ' }],
  ].map((args) => ({ names: ['socket'], action: 'SCMP_ACT_ERRNO', errnoRet: constants.errno.EPERM, args })),
};

interface BundleMount {
  readonly guestPath: string;
  /** Where the relay shows what is mounted. */
  readonly place: string;
  readonly readOnly: boolean;
}

export interface BundlePaths {
  readonly bundleDir: string;
  readonly rootDir: string;
  /** Where the relay shows the sandbox's /tmp: runsc would follow links on the way to the original. */
  readonly tmpDir: string;
  /** Directories that are mounted, likewise. */
  readonly mounts: readonly BundleMount[];
  readonly agent: string;
  readonly relay: string;
  readonly gateSocket: string;
}

/** Writes the OCI bundle that runsc starts or restores the sandbox from. */
export const writeBundle = (spec: MachineSpec, paths: BundlePaths): void => {
  const tmpfs = (destination: string, options: string[]) => ({
    destination,
    type: 'tmpfs',
    source: 'tmpfs',
    options: ['nosuid', 'nodev', ...options],
  });
  const bind = (destination: string, source: string, options: string[]) => ({
    destination,
    type: 'bind',
    source,
    options: ['bind', 'nosuid', 'nodev', ...options],
  });
  const config = {
    ociVersion: '1.0.2',
    process: {
      terminal: false,
      user: { uid: 0, gid: 0 },
      args: [agentInside, '--stdio'],
      env: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'],
      cwd: '/',
      noNewPrivileges: true,
      capabilities: {
        bounding: capabilities,
        effective: capabilities,
        permitted: capabilities,
        inheritable: [],
        ambient: [],
      },
    },
    root: { path: paths.rootDir },
    hostname: spec.hostname,
    mounts: [
      { destination: '/proc', type: 'proc', source: 'proc' },
      { destination: '/sys', type: 'sysfs', source: 'sysfs', options: ['nosuid', 'noexec', 'nodev', 'ro'] },
      tmpfs('/dev', ['mode=755']),
      tmpfs('/dev/shm', ['mode=1777']),
      tmpfs('/run', ['mode=755']),
      bind(agentInside, paths.agent, ['ro']),
      // Asked for by name, or gVisor would put a filesystem of memory over an empty /tmp, which no snapshot keeps.
      bind('/tmp', paths.tmpDir, ['rw']),
      ...paths.mounts.map(({ guestPath, place, readOnly }) =>
        bind(guestPath, place, [readOnly ? 'ro' : 'rw']),
      ),
    ],
    // Between the making of the sandbox and its first instruction: there it waits for its network.
    hooks: {
      createRuntime: [{ path: paths.relay, args: ['coppice-relay', '--gate', paths.gateSocket] }],
    },
    linux: {
      seccomp,
      namespaces: [
        { type: 'pid' },
        { type: 'ipc' },
        { type: 'uts' },
        { type: 'mount' },
        { type: 'network', path: spec.netns },
      ],
    },
  };
  mkdirSync(paths.bundleDir, { recursive: true, mode: 0o700 });
  writeFileSync(join(paths.bundleDir, 'config.json'), JSON.stringify(config, null, 1));
};
