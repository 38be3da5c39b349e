import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const secret = 'canary-of-the-host-4711';

/** A directory of the host that no sandbox and no call may read, write or list. */
export class HostCanary implements Disposable {
  readonly directory: string;
  readonly secret = secret;

  constructor(parent: string = tmpdir()) {
    this.directory = realpathSync(mkdtempSync(join(parent, 'coppice-canary-')));
    mkdirSync(join(this.directory, 'inner'));
    writeFileSync(this.file, secret);
    writeFileSync(join(this.directory, 'inner/secret'), secret);
  }

  get file(): string {
    return join(this.directory, 'secret');
  }

  /** What is different from the day it was made; empty when nobody was here. */
  damage(): string[] {
    const found = readdirSync(this.directory, { recursive: true }) as string[];
    const strange = found.filter((path) => !['secret', 'inner', 'inner/secret'].includes(path));
    const changed = ['secret', 'inner/secret'].filter((path) => {
      try {
        return readFileSync(join(this.directory, path), 'utf8') !== secret;
      } catch {
        return true;
      }
    });
    return [...strange, ...changed];
  }

  [Symbol.dispose](): void {
    rmSync(this.directory, { recursive: true, force: true });
  }
}
