import { accessSync, constants, readFileSync } from 'node:fs';
import { release } from 'node:os';
import { CoppiceError } from '@coppice/protocol';
import type { DriverHealth } from '../../driver.ts';
import { runProgram } from '../../programs/run-program.ts';

export interface ProbedParts {
  readonly bubblewrap: string;
  readonly programs: readonly string[];
  readonly cgroups: string;
}

/** Mapping the owners of mounts for overlays came with Linux 5.19; earlier ones refuse the image or the disk. */
const leastKernel = [5, 19] as const;

/** Looks at what a start needs, without starting anything. */
export async function probeContainers(parts: ProbedParts): Promise<DriverHealth> {
  const findings: { severity: 'error' | 'warning'; message: string; fix: string }[] = [];
  const fail = (message: string, fix: string) => findings.push({ severity: 'error', message, fix });
  if (process.getuid?.() !== 0) fail('the daemon is not root', 'Start it as root, for example with sudo.');
  const [major = 0, minor = 0] = release().split('.').map(Number);
  if (major < leastKernel[0] || (major === leastKernel[0] && minor < leastKernel[1])) {
    fail(`Linux ${release()} cannot map the owners of mounts`, 'Use Linux 5.19 or later.');
  }
  for (const program of parts.programs) {
    if (!isExecutable(program)) fail(`${program} is missing`, 'Build it: make -C native.');
  }
  if (!readFileSync('/proc/filesystems', 'utf8').includes('\toverlay\n')) {
    fail('the kernel has no overlay filesystem', 'Load it: modprobe overlay.');
  }
  if (readFileSync('/proc/sys/user/max_user_namespaces', 'utf8').trim() === '0') {
    fail('user namespaces are switched off', 'Raise the sysctl user.max_user_namespaces.');
  }
  const version = await bubblewrapVersion(parts.bubblewrap).catch((error: unknown) => {
    fail(error instanceof CoppiceError ? error.message : String(error), 'Install the package bubblewrap.');
    return 'bubblewrap missing';
  });
  const detail = `${version}, Linux ${release()}, ${parts.cgroups}`;
  return { usable: findings.length === 0, detail, memoryCompatibility: null, findings };
}

async function bubblewrapVersion(program: string): Promise<string> {
  return (await runProgram([program, '--version'])).stdout.trim();
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
