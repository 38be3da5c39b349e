import { PathGlob } from '@coppice/protocol/path-glob';

interface Rule {
  /** What is below a match matches too. */
  readonly globs: readonly PathGlob[];
  readonly takesBack: boolean;
}

/** What a .dockerignore leaves out: the last line that matches a path, or a directory above it, counts. */
export class DockerIgnore {
  readonly #rules: readonly Rule[];

  constructor(text: string) {
    this.#rules = text
      .split(/\r?\n/)
      .map((line) => line.trim())
      .filter((line) => line !== '' && !line.startsWith('#'))
      .map((line) => {
        const takesBack = line.startsWith('!');
        const path = (takesBack ? line.slice(1) : line)
          .trim()
          .replace(/^\.?\/+/, '')
          .replace(/\/+$/, '');
        const globs = [path, `${path}/**`].map((pattern) => new PathGlob(pattern, { deep: true }));
        return { globs, takesBack };
      });
  }

  leavesOut(path: string): boolean {
    let left = false;
    for (const { globs, takesBack } of this.#rules)
      if (globs.some((glob) => glob.matches(path))) left = !takesBack;
    return left;
  }

  /** Whether something below a directory that is left out may be taken back. */
  mayTakeBelow(path: string): boolean {
    return !this.leavesOut(path) || this.#rules.some(({ takesBack }) => takesBack);
  }
}
