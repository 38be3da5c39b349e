import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

export interface PageFile {
  readonly contentType: string;
  readonly plain: Buffer;
  readonly gzip: Buffer;
}

const contentTypes: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** The built page, held in memory: a build that replaces it beside a running daemon changes nothing for that one. */
export class PageFiles {
  readonly #files: ReadonlyMap<string, PageFile>;

  constructor(files: ReadonlyMap<string, PageFile>) {
    this.#files = files;
  }

  /** Found upwards from here, so that the bundle and the sources both find it. */
  static find(from: string): PageFiles {
    for (let directory = from; ; directory = dirname(directory)) {
      const web = join(directory, 'dist', 'web');
      if (existsSync(join(web, 'index.html'))) return PageFiles.read(web);
      if (directory === dirname(directory)) return new PageFiles(new Map());
    }
  }

  static read(directory: string): PageFiles {
    const files = new Map<string, PageFile>();
    for (const name of readdirSync(directory)) {
      const contentType = contentTypes[/\.\w+$/.exec(name)?.[0] ?? ''];
      if (contentType === undefined) continue;
      const path = join(directory, name);
      files.set(name, { contentType, plain: readFileSync(path), gzip: readFileSync(`${path}.gz`) });
    }
    return new PageFiles(files);
  }

  get(name: string): PageFile | undefined {
    return this.#files.get(name);
  }
}
