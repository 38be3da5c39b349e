import { readFileSync } from 'node:fs';

/** The port, the socket of the home, and forwarded ports together get half; sandboxes, disks and other work the rest. */
const share = 1 / 6;

/** As many connections as asked for, and no more than a sixth of the files that this process may have open. */
export const affordableConnections = (
  wanted: number,
  limits = readFileSync('/proc/self/limits', 'utf8'),
): number => {
  const most = /^Max open files\s+(\d+)/m.exec(limits)?.[1];
  return most === undefined ? wanted : Math.min(wanted, Math.floor(Number(most) * share));
};
