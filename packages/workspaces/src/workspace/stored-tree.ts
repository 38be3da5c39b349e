import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import { PackReader } from '../trees/pack-reader.ts';
import { pathBytes, pathText } from '../trees/path-text.ts';
import type { EntryType, TreeEntry } from '../trees/tree-node.ts';
import { parseTreeRoot } from '../trees/tree-root.ts';
import { shortId } from './resolve-reference.ts';
import type { SnapshotRecord } from './snapshot-record.ts';
import type { WorkspaceSession } from './workspace-session.ts';

export interface StoredEntry {
  readonly path: string;
  readonly type: EntryType;
  readonly mode: number;
  readonly size: number;
  readonly modified_at: string;
  readonly hash: string | null;
  /** Where a symbolic link leads, or the first name of a file that has several. */
  readonly target: string | null;
}

/** `file` is what has the content: the first name of a file that has several. */
const described = (path: string, entry: TreeEntry, file: TreeEntry): StoredEntry => ({
  path,
  type: entry.type,
  mode: file.mode,
  size: file.size,
  modified_at: new Date(file.mtimeMs).toISOString(),
  hash: file.type === 'f' ? file.hash : null,
  target: entry.link === '' ? null : entry.link,
});

/** What a snapshot holds, looked up without restoring it. */
export class StoredTree implements Disposable {
  readonly #session: WorkspaceSession;
  readonly #snapshot: SnapshotRecord;
  readonly #reader: PackReader;
  #copies = 0;

  constructor(session: WorkspaceSession, snapshot: SnapshotRecord) {
    this.#session = session;
    this.#snapshot = snapshot;
    this.#reader = new PackReader(session.layout.control);
  }

  /** `path` is relative to the worktree; empty is all of it. */
  #find(path: string): TreeEntry {
    const [top] = this.#reader.readNode(parseTreeRoot(this.#snapshot.root));
    let entry = top;
    for (const name of path.split('/').filter((part) => part !== '' && part !== '.')) {
      const bytes = pathBytes(name);
      entry =
        entry?.type === 'd'
          ? this.#reader.readNode(entry.location).find((child) => child.name.equals(bytes))
          : undefined;
    }
    if (entry) return entry;
    throw new CoppiceError(
      'not_found',
      `the snapshot ${shortId(this.#snapshot.snapshot_id)} has no ${JSON.stringify(path)}`,
      { hint: `See \`jvs ls ${shortId(this.#snapshot.snapshot_id)}\`.` },
    );
  }

  #describe(path: string, entry: TreeEntry): StoredEntry {
    return described(path, entry, entry.type === 'h' ? this.#find(entry.link) : entry);
  }

  *#below(entry: TreeEntry, path: string, recursive: boolean): Generator<StoredEntry> {
    for (const child of this.#reader.readNode(entry.location)) {
      const below = path === '' ? pathText(child.name) : `${path}/${pathText(child.name)}`;
      yield this.#describe(below, child);
      if (recursive && child.type === 'd') yield* this.#below(child, below, recursive);
    }
  }

  list(path: string, recursive: boolean): StoredEntry[] {
    const entry = this.#find(path);
    const clean = path
      .split('/')
      .filter((part) => part !== '' && part !== '.')
      .join('/');
    return entry.type === 'd' ? [...this.#below(entry, clean, recursive)] : [this.#describe(clean, entry)];
  }

  /** Puts the content of a file, checked against its hash, into a file of its own, for as long as `use` is at it. */
  async read<Result>(path: string, use: (copy: string) => Promise<Result>): Promise<Result> {
    let entry = this.#find(path);
    let where = path;
    if (entry.type === 'h') {
      where = entry.link;
      entry = this.#find(where);
    }
    if (entry.type !== 'f') {
      const what =
        entry.type === 'd' ? 'a directory' : entry.type === 'l' ? `a link to ${entry.link}` : 'no file';
      throw new CoppiceError('invalid_argument', `${path} is ${what}`, {
        hint: 'Name a file; `jvs ls` lists what there is.',
      });
    }
    const { layout } = this.#session;
    this.#copies += 1;
    const to = join(layout.temporary, `new-${process.pid}-${this.#copies}`);
    try {
      await this.#session.program.request('give', {
        store: layout.control,
        path: where,
        to,
        tree: this.#snapshot.storage === 'tree' ? layout.tree(this.#snapshot.snapshot_id) : undefined,
        size: entry.size,
        hash: entry.hash,
        pack: entry.location.pack,
        offset: entry.location.offset,
      });
      return await use(to);
    } finally {
      rmSync(to, { force: true });
    }
  }

  [Symbol.dispose](): void {
    this.#reader[Symbol.dispose]();
  }
}
