import { execFile } from 'node:child_process';
import { mkdir, rm, rmdir, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

const makers: Readonly<Record<string, readonly string[]>> = {
  ext4: ['mkfs.ext4', '-q', '-F', '-N', '4000000'],
  xfs: ['mkfs.xfs', '-q', '-f'],
  btrfs: ['mkfs.btrfs', '-q', '-f'],
};

/** A filesystem of its own in a sparse file, so that all three are measured on the same disk. */
export class BenchFilesystem implements AsyncDisposable {
  readonly kind: string;
  readonly path: string;
  readonly #image: string;

  private constructor(kind: string, path: string, image: string) {
    this.kind = kind;
    this.path = path;
    this.#image = image;
  }

  static async create(kind: string, below: string, sizeBytes: number): Promise<BenchFilesystem> {
    const [maker, ...options] = makers[kind] ?? [];
    if (!maker) throw new Error(`unknown filesystem ${kind}: use ${Object.keys(makers).join(', ')}`);
    const filesystem = new BenchFilesystem(kind, join(below, kind), join(below, `${kind}.img`));
    await writeFile(filesystem.#image, '');
    await truncate(filesystem.#image, sizeBytes);
    await run(maker, [...options, filesystem.#image]);
    await mkdir(filesystem.path);
    await run('mount', ['-o', 'loop', filesystem.#image, filesystem.path]);
    return filesystem;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await run('umount', ['-l', this.path]);
    await rm(this.#image, { force: true });
    await rmdir(this.path);
  }
}
