import { execFile } from 'node:child_process';
import { constants, copyFile, mkdir, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { MountedFilesystem } from '@coppice/testkit';

const run = promisify(execFile);

/** How each is made, and how a copy of it is mounted beside it. */
const kinds = {
  ext4: { maker: ['mkfs.ext4', '-q'], options: 'loop' },
  xfs: { maker: ['mkfs.xfs', '-q'], options: 'loop,nouuid' },
  btrfs: { maker: ['mkfs.btrfs', '-q'], options: 'loop' },
} as const;

/**
 * A filesystem whose power can be cut while it is in use. Its disk is a file on an XFS, which clones a file in one instant:
 * the clone holds what had reached the disk at that moment and nothing else, as a disk does when the power goes.
 */
export class PowerCutDisk implements AsyncDisposable {
  readonly path: string;
  readonly #kind: keyof typeof kinds;
  readonly #host: MountedFilesystem;
  #cuts = 0;

  private constructor(kind: keyof typeof kinds, host: MountedFilesystem) {
    this.#kind = kind;
    this.#host = host;
    this.path = join(host.path, 'mounted');
  }

  get #image(): string {
    return join(this.#host.path, 'disk.img');
  }

  static async create(kind: keyof typeof kinds, below: string, sizeBytes: number): Promise<PowerCutDisk> {
    const disk = new PowerCutDisk(kind, await MountedFilesystem.create('xfs', below, 4 * sizeBytes));
    await writeFile(disk.#image, '');
    await truncate(disk.#image, sizeBytes);
    const [maker, ...options] = kinds[kind].maker;
    await run(maker, [...options, disk.#image]);
    await mkdir(disk.path);
    await run('mount', ['-o', 'loop', disk.#image, disk.path]);
    return disk;
  }

  /** Cuts the power, then calls `after`, then `look` with the filesystem as it is found when the power is back. */
  async cut(after: () => Promise<void>, look: (path: string) => Promise<void>): Promise<void> {
    this.#cuts += 1;
    const image = join(this.#host.path, `cut-${this.#cuts}.img`);
    const path = join(this.#host.path, `cut-${this.#cuts}`);
    await copyFile(this.#image, image, constants.COPYFILE_FICLONE_FORCE);
    await after();
    await mkdir(path);
    await run('mount', ['-o', kinds[this.#kind].options, image, path]);
    try {
      await look(path);
    } finally {
      await run('umount', [path]);
      await rm(image);
    }
  }

  /** What the disk holds at this instant, and goes on from after the power is back. */
  async hold(): Promise<string> {
    this.#cuts += 1;
    const image = join(this.#host.path, `cut-${this.#cuts}.img`);
    await copyFile(this.#image, image, constants.COPYFILE_FICLONE_FORCE);
    return image;
  }

  /** Mounts it in the place of this filesystem, which nobody may be using. */
  async become(image: string): Promise<void> {
    await run('umount', [this.path]);
    await run('mount', ['-o', kinds[this.#kind].options, image, this.path]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await run('umount', [this.path]);
    await this.#host[Symbol.asyncDispose]();
  }
}
