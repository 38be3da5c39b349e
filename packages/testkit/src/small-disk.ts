import { execFileSync } from 'node:child_process';
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  statfsSync,
  truncateSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const mebibyte = 1024 ** 2;

/** A filesystem of its own in a file, small enough to be filled for good. */
export class SmallDisk implements Disposable {
  readonly directory: string;
  /** The file that holds all of it. */
  readonly image: string;
  readonly #base: string;

  private constructor(base: string) {
    this.#base = base;
    this.directory = join(base, 'disk');
    this.image = join(base, 'disk.img');
  }

  static make(sizeMb: number): SmallDisk {
    const disk = new SmallDisk(mkdtempSync(join(tmpdir(), 'coppice-disk-')));
    try {
      closeSync(openSync(disk.image, 'w'));
      truncateSync(disk.image, sizeMb * mebibyte);
      // Nothing kept back for root: the daemon is root too.
      execFileSync('mkfs.ext4', ['-q', '-m', '0', '-F', disk.image]);
      mkdirSync(disk.directory);
      execFileSync('mount', ['-o', 'loop', disk.image, disk.directory]);
    } catch (error) {
      rmSync(disk.#base, { recursive: true, force: true });
      throw error;
    }
    return disk;
  }

  get freeBytes(): number {
    const { bavail, bsize } = statfsSync(this.directory);
    return bavail * bsize;
  }

  /** Takes so much of it; without a number all that is left, down to the last block. */
  fill(bytes?: number): void {
    const file = openSync(join(this.directory, 'filler'), 'a');
    try {
      if (bytes !== undefined) {
        writeSync(file, Buffer.alloc(bytes, 0x66));
        return;
      }
      for (const size of [mebibyte, 64 * 1024, 4096]) {
        const block = Buffer.alloc(size, 0x66);
        while (this.#writes(file, block));
      }
    } finally {
      closeSync(file);
    }
  }

  makeRoom(): void {
    rmSync(join(this.directory, 'filler'), { force: true });
  }

  remountReadOnly(): void {
    execFileSync('mount', ['-o', 'remount,ro', this.directory]);
  }

  remountWritable(): void {
    execFileSync('mount', ['-o', 'remount,rw', this.directory]);
  }

  [Symbol.dispose](): void {
    execFileSync('umount', [this.directory]);
    rmSync(this.#base, { recursive: true, force: true });
  }

  #writes(file: number, block: Buffer): boolean {
    try {
      return writeSync(file, block) === block.length;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOSPC') return false;
      throw error;
    }
  }
}
