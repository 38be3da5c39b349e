import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  statfsSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Filesystems that homes and workspaces can live on, by the number in statfs. On others owners cannot be mapped. */
const fit: Readonly<Record<number, string>> = {
  61267: 'ext4',
  1481003842: 'xfs',
  2435016766: 'btrfs',
  16914836: 'tmpfs',
};

/** A directory for all that a test run makes. */
export class Temporary {
  readonly path: string;
  readonly #image: string | undefined;

  private constructor(path: string, image: string | undefined) {
    this.path = path;
    this.#image = image;
  }

  /** With a filesystem of its own where that below is none that a home could live on, as the overlay of a container is. */
  static make(below = tmpdir()): Temporary {
    // Short, as sockets live below it and their paths are limited to 107 bytes.
    const path = realpathSync(mkdtempSync(join(below, 'ct-')));
    const { type, bavail, bsize } = statfsSync(path);
    const image = fit[type] === undefined ? `${path}.img` : undefined;
    if (image !== undefined) {
      console.log(
        `note: ${below} is on a filesystem that homes cannot live on; the tests get an ext4 of their own`,
      );
      writeFileSync(image, '');
      truncateSync(image, Math.floor(bavail * bsize * 0.75));
      execFileSync('mkfs.ext4', ['-q', '-F', image]);
      execFileSync('mount', ['-o', 'loop', image, path]);
      rmSync(join(path, 'lost+found'), { recursive: true });
    }
    // Tests that run as somebody else pass through it, and see nothing in it.
    chmodSync(path, 0o711);
    return new Temporary(path, image);
  }

  remove(): void {
    if (this.#image !== undefined) {
      execFileSync('umount', [this.path]);
      rmSync(this.#image);
    }
    rmSync(this.path, { recursive: true, force: true });
  }
}
