export interface Line {
  readonly kind: 'same' | 'added' | 'removed';
  readonly text: string;
  /** Its number before and after; null where it is not. */
  readonly before: number | null;
  readonly after: number | null;
}

export interface Hunk {
  readonly title: string;
  readonly lines: readonly Line[];
}

/** A unified diff as the daemon makes it, by hunks. */
export const hunksOf = (unified: string): Hunk[] => {
  const hunks: { title: string; lines: Line[] }[] = [];
  let before = 0;
  let after = 0;
  for (const line of unified.split('\n')) {
    const start = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(line);
    if (start !== null) {
      before = Number(start[1]);
      after = Number(start[2]);
      hunks.push({ title: line, lines: [] });
      continue;
    }
    const lines = hunks.at(-1)?.lines;
    if (lines === undefined) continue;
    const text = line.slice(1);
    if (line.startsWith('+')) lines.push({ kind: 'added', text, before: null, after: after++ });
    else if (line.startsWith('-')) lines.push({ kind: 'removed', text, before: before++, after: null });
    else if (line.startsWith(' ')) lines.push({ kind: 'same', text, before: before++, after: after++ });
  }
  return hunks;
};

/** Side by side: what was removed stands beside what came in its place. */
export const pairsOf = (lines: readonly Line[]): (readonly [Line | undefined, Line | undefined])[] => {
  const pairs: [Line | undefined, Line | undefined][] = [];
  for (let at = 0; at < lines.length; ) {
    const line = lines[at]!;
    if (line.kind === 'same') {
      pairs.push([line, line]);
      at += 1;
      continue;
    }
    const removed: Line[] = [];
    const added: Line[] = [];
    for (; at < lines.length && lines[at]!.kind !== 'same'; at += 1)
      (lines[at]!.kind === 'removed' ? removed : added).push(lines[at]!);
    for (let index = 0; index < Math.max(removed.length, added.length); index += 1)
      pairs.push([removed[index], added[index]]);
  }
  return pairs;
};

export interface Folder {
  readonly name: string;
  readonly path: string;
  readonly folders: Folder[];
  readonly files: { readonly name: string; readonly path: string }[];
  count: number;
}

/** Changed paths as a tree; folders that hold one folder and nothing else are written in one line. */
export const treeOf = (paths: readonly string[]): Folder => {
  const root: Folder = { name: '', path: '', folders: [], files: [], count: 0 };
  const known = new Map<string, Folder>([['', root]]);
  const folderAt = (path: string): Folder => {
    const found = known.get(path);
    if (found !== undefined) return found;
    const cut = path.lastIndexOf('/');
    const folder: Folder = { name: path.slice(cut + 1), path, folders: [], files: [], count: 0 };
    known.set(path, folder);
    folderAt(path.slice(0, Math.max(0, cut))).folders.push(folder);
    return folder;
  };
  for (const path of paths) {
    const cut = path.lastIndexOf('/');
    folderAt(path.slice(0, Math.max(0, cut))).files.push({ name: path.slice(cut + 1), path });
  }
  const settle = (folder: Folder): Folder => {
    const folders = folder.folders.map(settle);
    const settled = {
      ...folder,
      folders,
      count: folder.files.length + folders.reduce((sum, { count }) => sum + count, 0),
    };
    const [only] = folders;
    return folder.path !== '' && settled.files.length === 0 && folders.length === 1
      ? { ...only!, name: `${folder.name}/${only!.name}` }
      : settled;
  };
  return settle(root);
};
