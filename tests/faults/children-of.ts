import { readdirSync, readFileSync } from 'node:fs';

/** Processes that the daemon started itself and that run this program. */
export const childrenOf = (parent: number, program: string): number[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const status = readFileSync(`/proc/${pid}/status`, 'utf8');
        const isChild = new RegExp(`^PPid:\\s+${parent}$`, 'm').test(status);
        return isChild && readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')[0]?.endsWith(program);
      } catch {
        return false;
      }
    });
