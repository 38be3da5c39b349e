import { randomBytes } from 'node:crypto';
import { appendFile, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

export interface WorkloadSize {
  readonly smallFiles: number;
  readonly smallBytes: number;
  readonly largeFiles: number;
  readonly largeBytes: number;
}

/** 10,000 files of 4 KiB and 50 of 20 MiB, of bytes that do not compress. */
export const fullWorkload: WorkloadSize = {
  smallFiles: 10_000,
  smallBytes: 4096,
  largeFiles: 50,
  largeBytes: 20 << 20,
};
/** For the cells beside git: 50,000 files of 4 KiB. */
export const manyFiles: WorkloadSize = {
  smallFiles: 50_000,
  smallBytes: 4096,
  largeFiles: 0,
  largeBytes: 0,
};
export const tinyWorkload: WorkloadSize = {
  smallFiles: 500,
  smallBytes: 4096,
  largeFiles: 2,
  largeBytes: 2 << 20,
};

const perFolder = 100;
const smallPath = (file: number): string => join(`d${Math.floor(file / perFolder)}`, `f${file}`);

export const makeWorkload = async (directory: string, size: WorkloadSize): Promise<void> => {
  for (let file = 0; file < size.smallFiles; file += 1) {
    if (file % perFolder === 0) await mkdir(join(directory, `d${file / perFolder}`), { recursive: true });
    await writeFile(join(directory, smallPath(file)), randomBytes(size.smallBytes));
  }
  await mkdir(join(directory, 'large'), { recursive: true });
  for (let file = 0; file < size.largeFiles; file += 1) {
    await writeFile(join(directory, 'large', `${file}`), randomBytes(size.largeBytes));
  }
};

/** Adds to `count` small files, spread over the tree. */
export const changeFiles = async (directory: string, size: WorkloadSize, count: number): Promise<void> => {
  for (let step = 0; step < count; step += 1) {
    const file = Math.floor((step * size.smallFiles) / count);
    await appendFile(join(directory, smallPath(file)), randomBytes(100));
  }
};
