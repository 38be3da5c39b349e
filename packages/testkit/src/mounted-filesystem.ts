import { execFile } from 'node:child_process';
import { mkdir, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { type MountableKind, makers } from './mountable.ts';
import { unmount } from './plain-directory.ts';

const run = promisify(execFile);

/** An ext4 whose inodes have no room for parts of a second. */
const withoutFractions = [...makers.ext4, '-I', '128'] as const;

/** A filesystem of its own in a file, mounted below a directory. */
export class MountedFilesystem implements AsyncDisposable {
  readonly path: string;
  readonly #image: string;

  private constructor(path: string, image: string) {
    this.path = path;
    this.#image = image;
  }

  static async create(
    kind: MountableKind | 'ext4-seconds',
    below: string,
    sizeBytes = 512 * 1024 * 1024,
  ): Promise<MountedFilesystem> {
    const mounted = new MountedFilesystem(join(below, kind), join(below, `${kind}.img`));
    await writeFile(mounted.#image, '');
    await truncate(mounted.#image, sizeBytes);
    const [maker, ...options] = kind === 'ext4-seconds' ? withoutFractions : makers[kind];
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
    await unmount(this.path);
    // As long as anybody looks at it the device lives on, and the next mount would find it with what it remembers.
    const deadline = Date.now() + 60_000;
    while ((await run('losetup', ['-j', this.#image])).stdout !== '') {
      if (Date.now() > deadline) throw new Error(`the device of ${this.#image} is still there`);
      await sleep(20);
    }
    await work(this.#image);
    await run('mount', ['-o', 'loop', this.#image, this.path]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await unmount(this.path);
    await rm(this.#image, { force: true });
  }
}
