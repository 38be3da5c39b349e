import { execFile } from 'node:child_process';
import { chmod, mkdtemp, realpath, rm, statfs, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);
const ext4Magic = 0xef53;
/** Sparse: only what is written takes room. */
const sizeBytes = 16 * 1024 ** 3;
const leaveDeadlineMs = 60_000;

/**
 * A new temporary directory on ext4, whatever filesystem temporary files of this machine are on: one that has no
 * clones and no subvolumes, notes times as disks do, and can be the upper layer of an overlay.
 */
export class PlainDirectory implements AsyncDisposable {
  readonly path: string;
  readonly #image: string | undefined;

  private constructor(path: string, image: string | undefined) {
    this.path = path;
    this.#image = image;
  }

  static async make(prefix: string): Promise<PlainDirectory> {
    const path = await realpath(await mkdtemp(join(tmpdir(), prefix)));
    if ((await statfs(path)).type === ext4Magic) return new PlainDirectory(path, undefined);
    const image = `${path}.img`;
    await writeFile(image, '');
    await truncate(image, sizeBytes);
    await run('mkfs.ext4', ['-q', '-F', image]);
    await run('mount', ['-o', 'loop', image, path]);
    // Would stand among what the tests make.
    await rm(join(path, 'lost+found'), { recursive: true });
    await chmod(path, 0o700);
    return new PlainDirectory(path, image);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#image !== undefined) {
      await unmount(this.path);
      await rm(this.#image, { force: true });
    }
    await rm(this.path, { recursive: true, force: true });
  }
}

/** A program that has been told to end may still hold a file for a moment. */
export const unmount = async (path: string): Promise<void> => {
  const deadline = Date.now() + leaveDeadlineMs;
  for (;;) {
    try {
      await run('umount', [path]);
      return;
    } catch (error) {
      if (Date.now() > deadline) throw error;
      await sleep(50);
    }
  }
};
