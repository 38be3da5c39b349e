import { execFile } from 'node:child_process';
import { mkdir, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { promisify } from 'node:util';
import { skipFor } from '@coppice/testkit';

const run = promisify(execFile);

const makers = {
  btrfs: ['mkfs.btrfs', '-q'],
  xfs: ['mkfs.xfs', '-q'],
  ext4: ['mkfs.ext4', '-q'],
  // Inodes without room for parts of a second.
  'ext4-seconds': ['mkfs.ext4', '-q', '-I', '128'],
} as const;

/** Whether loop devices can be mounted here. */
export const canMount = process.getuid?.() === 0;

/** For tests that cannot do without. */
export const whereMounts = skipFor(canMount ? undefined : 'only root can mount filesystems');

/** A filesystem of its own in a file, mounted below a directory. */
export class MountedFilesystem implements AsyncDisposable {
  readonly path: string;
  readonly #image: string;

  private constructor(path: string, image: string) {
    this.path = path;
    this.#image = image;
  }

  static async create(
    kind: keyof typeof makers,
    below: string,
    sizeBytes = 512 * 1024 * 1024,
  ): Promise<MountedFilesystem> {
    const mounted = new MountedFilesystem(join(below, kind), join(below, `${kind}.img`));
    await writeFile(mounted.#image, '');
    await truncate(mounted.#image, sizeBytes);
    const [maker, ...options] = makers[kind];
    await run(maker, [...options, mounted.#image]);
    await mkdir(mounted.path, { recursive: true });
    await run('mount', ['-o', 'loop', mounted.#image, mounted.path]);
    return mounted;
  }

  /** One without a device: `mount -t TYPE -o OPTIONS`. */
  static async withoutDevice(type: string, options: string, below: string): Promise<MountedFilesystem> {
    const mounted = new MountedFilesystem(join(below, type), join(below, `${type}.img`));
    await mkdir(mounted.path, { recursive: true });
    await run('mount', ['-t', type, '-o', options, type, mounted.path]);
    return mounted;
  }

  async whileUnmounted(work: (image: string) => Promise<void>): Promise<void> {
    await this.#unmount();
    // As long as anybody looks at it the device lives on, and the next mount would find it with what it remembers.
    const deadline = Date.now() + 60_000;
    while ((await run('losetup', ['-j', this.#image])).stdout !== '') {
      if (Date.now() > deadline) throw new Error(`the device of ${this.#image} is still there`);
      await setTimeout(20);
    }
    await work(this.#image);
    await run('mount', ['-o', 'loop', this.#image, this.path]);
  }

  async #unmount(): Promise<void> {
    // A program that has been told to end may still hold a file for a moment.
    const deadline = Date.now() + 60_000;
    for (;;) {
      try {
        await run('umount', [this.path]);
        break;
      } catch (error) {
        if (Date.now() > deadline) throw error;
        await setTimeout(50);
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#unmount();
    await rm(this.#image, { force: true });
  }
}
