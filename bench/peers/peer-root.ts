import { execFile } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { tinyImage } from '@coppice/testkit';

const run = promisify(execFile);

/** The image of the sandboxes with an empty writable layer above, mounted once: peers do not pay for the mount. */
export class PeerRoot implements AsyncDisposable {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  static async mount(directory: string): Promise<PeerRoot> {
    const [path, upper, work] = ['merged', 'upper', 'work'].map((name) => join(directory, name)) as [
      string,
      string,
      string,
    ];
    for (const each of [path, upper, work]) mkdirSync(each, { recursive: true });
    const layers = `lowerdir=${await tinyImage()},upperdir=${upper},workdir=${work}`;
    await run('mount', ['-t', 'overlay', '-o', `userxattr,${layers}`, 'overlay', path]);
    return new PeerRoot(path);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await run('umount', ['--lazy', this.path]);
  }
}
