import { readFileSync } from 'node:fs';

/** What a sandbox has to itself, made anew by whoever restores it, with its content where it has any. */
const own = new Set([
  ...['/', '/dev', '/dev/pts', '/dev/shm', '/dev/mqueue', '/run', '/sys', '/proc'],
  ...['/proc/acpi', '/proc/scsi', '/proc/asound'],
  // A file of its own /run.
  '/proc/meminfo',
]);

const placeField = 4;

/** The places inside at which something of the host is mounted: devices, masks, the agent, a directory at /workspace. */
export const mountsFromHost = (pid: number): string[] =>
  readFileSync(`/proc/${pid}/mountinfo`, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => line.split(' ')[placeField]!)
    .filter((place) => !own.has(place));
