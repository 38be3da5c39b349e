import { readFileSync } from 'node:fs';

/** The features of this machine's processors: a process may use any that it found when it started. */
export const cpuFeatures = (): string[] => {
  const info = readFileSync('/proc/cpuinfo', 'utf8');
  const flags = /^(?:flags|Features)\s*:\s*(.*)$/m.exec(info)?.[1] ?? '';
  return [...new Set(flags.split(/\s+/).filter((flag) => flag !== ''))].sort();
};
