import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** The features of this machine's CPUs as one short word: a memory image may use any that it was made with. */
export const cpuFeatures = (): string => {
  const info = readFileSync('/proc/cpuinfo', 'utf8');
  const flags = /^(?:flags|Features)\s*:\s*(.*)$/m.exec(info)?.[1] ?? '';
  const sorted = [...new Set(flags.split(/\s+/))].sort().join(' ');
  return `cpu:${createHash('sha256').update(sorted).digest('hex').slice(0, 16)}`;
};
