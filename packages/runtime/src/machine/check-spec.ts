import { statSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { CoppiceError, mountPointSchema } from '@coppice/protocol';
import type { MachineLimits, MachineSpec } from '../driver.ts';

const idPattern = /^[a-z0-9][a-z0-9_-]{0,99}$/;
const hostnamePattern = /^[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?$/;
const leastMemoryBytes = 4 << 20;
/** The agent, and the two processes that start it. */
const leastPids = 4;

const refuse = (message: string): never => {
  throw new CoppiceError('invalid_argument', message);
};

/** Refuses what would fail half-way, before anything was made. */
export function checkSpec(spec: MachineSpec): void {
  checkId(spec.id);
  checkHostname(spec.hostname);
  checkLimits(spec.limits);
  for (const layer of spec.image.layers) checkDirectory('image', join(spec.image.directory, layer));
  checkDirectory('disk', join(spec.diskDir, 'upper'));
  checkDirectory('disk', join(spec.diskDir, 'work'));
  // Whether it is there, and what it is, is told by whoever opens it.
  for (const { hostPath, guestPath } of spec.mounts ?? []) {
    checkPath('mounted', hostPath);
    if (!mountPointSchema.safeParse(guestPath).success)
      refuse(`nothing can be mounted at ${JSON.stringify(guestPath)}`);
  }
}

/** Ids become names of directories and cgroups. */
export function checkId(id: string): void {
  if (!idPattern.test(id)) refuse(`${JSON.stringify(id)} is not the id of a sandbox`);
}

export function checkHostname(hostname: string): void {
  if (!hostnamePattern.test(hostname)) {
    refuse(`${JSON.stringify(hostname)} is not a hostname: up to 64 letters, digits, dots and hyphens`);
  }
}

export function checkLimits(limits: MachineLimits): void {
  const { cpus, memoryBytes, pids } = limits;
  if (!(Number.isFinite(cpus) && cpus >= 0.01)) refuse(`cpus must be at least 0.01, not ${cpus}`);
  if (!(Number.isSafeInteger(memoryBytes) && memoryBytes >= leastMemoryBytes)) {
    refuse(`memory must be at least ${leastMemoryBytes} bytes, not ${memoryBytes}`);
  }
  if (!(Number.isSafeInteger(pids) && pids >= leastPids))
    refuse(`pids must be at least ${leastPids}, not ${pids}`);
}

function checkPath(what: string, path: string): void {
  if (!isAbsolute(path) || path.includes('\0'))
    refuse(`the ${what} directory ${JSON.stringify(path)} is not absolute`);
}

function checkDirectory(what: string, path: string): void {
  checkPath(what, path);
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory() !== true) {
    throw new CoppiceError('not_found', `the ${what} directory ${path} does not exist`);
  }
}
