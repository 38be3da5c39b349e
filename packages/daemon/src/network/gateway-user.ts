import { chmodSync, chownSync, existsSync, lchownSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';

/**
 * Makes the directory of the gateway its user's own, with what an earlier version left there as root. The directory itself goes last: until
 * then only root could put anything into it, so nothing there can be a trap.
 */
export function handOver(directory: string, id: number): void {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  if (statSync(directory).uid !== id) {
    for (const name of readdirSync(directory)) lchownSync(join(directory, name), id, id);
    chownSync(directory, id, id);
  }
  // It reads models.json, which lies beside its directory: it may pass through the home, to which
  // everything else is closed, and list nothing in it.
  const home = dirname(directory);
  // All that the daemon makes is closed already, but for the root of the pool's filesystem; settings are made by people.
  for (const [name, mode] of [
    ['pool', 0o700],
    ['config.json', 0o600],
  ] as const)
    if (existsSync(join(home, name))) chmodSync(join(home, name), mode);
  chownSync(home, statSync(home).uid, id);
  chmodSync(home, 0o710);
}
