import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol';

/*
 * Synchronous on purpose: the kernel answers these from memory in some ten microseconds, a turn through the thread
 * pool costs ten times that, and a freeze has a sandbox standing still meanwhile.
 */
export function writeCgroupFile(file: string, value: string): void {
  try {
    writeFileSync(file, value);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'EBUSY' && file.includes('memory')) {
      throw memoryInUse(Number(value), error);
    }
    throw new CoppiceError('internal', `writing ${value} to ${file} failed with ${code}`, { cause: error });
  }
}

export const memoryInUse = (limitBytes: number, cause?: unknown): CoppiceError =>
  new CoppiceError('wrong_state', `the sandbox uses more memory than the new limit of ${limitBytes} bytes`, {
    hint: 'Stop something inside, or choose a higher limit.',
    cause,
  });

/**
 * Empty when the group is gone, as its last process may end at any time.
 * Read as UTF-8: for any other encoding Node allocates 64 KiB per call, and every exec reads four of these files.
 */
export function readCgroupFile(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' || code === 'ENODEV') return '';
    throw new CoppiceError('internal', `reading ${file} failed with ${code}`, { cause: error });
  }
}

/** A number that stands alone in a file, or after a key on a line of it; zero when the group is gone. */
export function readCgroupNumber(file: string, key?: string): number {
  const text = readCgroupFile(file);
  if (key === undefined) return Number(text.trim() || 0);
  const line = text.split('\n').find((candidate) => candidate.startsWith(`${key} `));
  return line === undefined ? 0 : Number(line.slice(key.length + 1));
}

export function makeCgroup(directory: string): void {
  if (existsSync(directory)) return;
  try {
    mkdirSync(directory);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'EEXIST') return;
    throw new CoppiceError('unsupported', `the cgroup ${directory} cannot be made: ${code}`, {
      hint: 'The daemon needs root and a writable cgroup filesystem; in a container, give it its own cgroup tree.',
      cause: error,
    });
  }
}
