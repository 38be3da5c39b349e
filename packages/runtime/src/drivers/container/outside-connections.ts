import { readFileSync } from 'node:fs';

const remoteField = 2;
const stateField = 3;
/** Listening, closed, and waiting for stray packets: none of them has a peer to lose. */
const withoutPeer = new Set(['0A', '07', '06']);

/** As the kernel writes addresses: words of four bytes, each in the order of this machine. */
const isLoopback = (address: string): boolean =>
  address.length === 8
    ? address.endsWith('7F')
    : address === '00000000000000000000000001000000' || /^0{16}FFFF0000.{6}7F$/.test(address);

/** Whether a program of the sandbox holds a TCP connection that leaves it. */
export const hasOutsideConnections = (pid: number): boolean =>
  ['tcp', 'tcp6'].some((table) =>
    readIfThere(`/proc/${pid}/net/${table}`)
      .split('\n')
      .slice(1)
      .filter((line) => line !== '')
      .map((line) => line.trim().split(/\s+/))
      .some(
        (fields) => !withoutPeer.has(fields[stateField]!) && !isLoopback(fields[remoteField]!.split(':')[0]!),
      ),
  );

/** A kernel without IPv6 has no table of it. */
function readIfThere(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw error;
  }
}
