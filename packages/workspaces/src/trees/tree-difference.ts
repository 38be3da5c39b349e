import { CoppiceError } from '@coppice/protocol/errors';
import type { PackReader } from './pack-reader.ts';
import { pathText } from './path-text.ts';
import type { EntryType, TreeEntry } from './tree-node.ts';
import type { NodeLocation, TreeRoot } from './tree-root.ts';

export interface EntryChange {
  readonly path: string;
  readonly change: 'added' | 'removed' | 'modified' | 'metadata';
  readonly type: EntryType;
  readonly sizeBefore: number | null;
  readonly sizeAfter: number | null;
  readonly modeBefore: number | null;
  readonly modeAfter: number | null;
  readonly hashBefore: string | null;
  readonly hashAfter: string | null;
}

const change = (path: string, before: TreeEntry | undefined, after: TreeEntry | undefined): EntryChange => {
  const sameContent =
    before?.type === after?.type && before?.hash === after?.hash && before?.link === after?.link;
  return {
    path,
    change: !before ? 'added' : !after ? 'removed' : sameContent ? 'metadata' : 'modified',
    type: (after ?? before)?.type ?? 'f',
    sizeBefore: before?.size ?? null,
    sizeAfter: after?.size ?? null,
    modeBefore: before?.mode ?? null,
    modeAfter: after?.mode ?? null,
    hashBefore: before?.hash ?? null,
    hashAfter: after?.hash ?? null,
  };
};

const ownFields = (entry: TreeEntry): Buffer => {
  const copy = Buffer.from(entry.canonical);
  copy.fill(0, 40, 72);
  return copy;
};

/** Modes, owners and attributes of a directory count as a change of it; the time of its last change does not. */
const sameDirectory = (before: TreeEntry, after: TreeEntry): boolean => {
  const [a, b] = [ownFields(before), ownFields(after)];
  a.fill(0, 16, 24);
  b.fill(0, 16, 24);
  return a.equals(b);
};

export class TreeDifference {
  readonly #reader: PackReader;
  readonly #only: readonly string[] | undefined;

  constructor(reader: PackReader, only?: readonly string[]) {
    this.#reader = reader;
    this.#only = only;
  }

  /** Sorted by path, directories before what they hold. Subtrees with the same hash are not read. */
  *between(before: TreeRoot | undefined, after: TreeRoot | undefined): Generator<EntryChange> {
    if (before?.hash === after?.hash) return;
    try {
      yield* this.#tops(before, after);
    } catch (error) {
      // A damaged directory may say that it lies within itself.
      if (!(error instanceof RangeError)) throw error;
      throw new CoppiceError('corrupt', 'a stored directory cannot be read', { cause: error });
    }
  }

  *#tops(before: TreeRoot | undefined, after: TreeRoot | undefined): Generator<EntryChange> {
    const [left] = before ? this.#reader.readNode(before) : [];
    const [right] = after ? this.#reader.readNode(after) : [];
    yield* this.#directories(left, right, '');
  }

  #selected(path: string, type: EntryType): boolean {
    if (!this.#only) return true;
    return this.#only.some(
      (chosen) =>
        path === chosen || path.startsWith(`${chosen}/`) || (type === 'd' && chosen.startsWith(`${path}/`)),
    );
  }

  #load(entry: TreeEntry | undefined): TreeEntry[] {
    return entry?.type === 'd' ? this.#reader.readNode(entry.location as NodeLocation) : [];
  }

  *#directories(
    left: TreeEntry | undefined,
    right: TreeEntry | undefined,
    path: string,
  ): Generator<EntryChange> {
    const before = this.#load(left);
    const after = this.#load(right);
    let i = 0;
    let j = 0;
    while (i < before.length || j < after.length) {
      const a = before[i];
      const b = after[j];
      const order = !a ? 1 : !b ? -1 : Buffer.compare(a.name, b.name);
      const old = order <= 0 ? a : undefined;
      const now = order >= 0 ? b : undefined;
      if (old) i += 1;
      if (now) j += 1;
      const any = (now ?? old) as TreeEntry;
      const below = path ? `${path}/${pathText(any.name)}` : pathText(any.name);
      if (this.#selected(below, any.type)) yield* this.#entry(old, now, below);
    }
  }

  *#entry(old: TreeEntry | undefined, now: TreeEntry | undefined, path: string): Generator<EntryChange> {
    if (old && now && old.canonical.equals(now.canonical)) return;
    const bothDirectories = old?.type === 'd' && now?.type === 'd';
    if (!bothDirectories || !sameDirectory(old, now)) {
      const found = change(path, old, now);
      yield bothDirectories ? { ...found, change: 'metadata' } : found;
    }
    if ((old?.type === 'd' || now?.type === 'd') && old?.hash !== now?.hash)
      yield* this.#directories(old, now, path);
  }
}
