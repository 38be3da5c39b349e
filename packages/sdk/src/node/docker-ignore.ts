interface Rule {
  readonly pattern: RegExp;
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
        return { pattern: patternOf(path), takesBack };
      });
  }

  leavesOut(path: string): boolean {
    let left = false;
    for (const { pattern, takesBack } of this.#rules) if (pattern.test(path)) left = !takesBack;
    return left;
  }

  /** Whether something below a directory that is left out may be taken back. */
  mayTakeBelow(path: string): boolean {
    return !this.leavesOut(path) || this.#rules.some(({ takesBack }) => takesBack);
  }
}

/** `**` stands for any number of directories, `*` and `?` for anything but a slash. What is below a match matches too. */
function patternOf(path: string): RegExp {
  let text = '';
  for (let at = 0; at < path.length; at += 1) {
    if (path.startsWith('**/', at)) {
      text += '(?:.*/)?';
      at += 2;
    } else if (path.startsWith('**', at)) {
      text += '.*';
      at += 1;
    } else if (path[at] === '*') text += '[^/]*';
    else if (path[at] === '?') text += '[^/]';
    else if (path[at] === '[' && path.indexOf(']', at + 2) > 0) {
      const end = path.indexOf(']', at + 2);
      text += `[${path.slice(at + 1, end).replace(/[\\\]]/g, '\\$&')}]`;
      at = end;
    } else if (path[at] === '\\' && at + 1 < path.length) {
      at += 1;
      text += escaped(path[at]!);
    } else text += escaped(path[at]!);
  }
  return new RegExp(`^${text}(?:/.*)?$`, 's');
}

const escaped = (character: string): string => character.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&');
