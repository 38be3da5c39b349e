import type { TreeEntry } from './tree-entry.ts';

/** What the layers of an image make of one name. */
export interface ImageNode {
  readonly entry: TreeEntry;
  readonly layerDir: string;
  /** For directories: the layers that its content comes from, topmost first. */
  readonly dirs: readonly string[];
}

/** The topmost layer that has the name decides; directories are merged as far down as nothing hides them. */
export function stackEntries(
  dirs: readonly string[],
  entries: readonly (TreeEntry | undefined)[],
): ImageNode | undefined {
  const merged: string[] = [];
  let top: { entry: TreeEntry; layerDir: string } | undefined;
  for (const [index, layerDir] of dirs.entries()) {
    const entry = entries[index];
    if (entry === undefined) continue;
    if (entry.whiteout) break;
    // A file where a layer above has a directory shows nothing of itself.
    if (entry.kind !== 'directory') {
      top ??= { entry, layerDir };
      break;
    }
    top ??= { entry, layerDir };
    merged.push(layerDir);
    if (entry.opaque) break;
  }
  return top === undefined ? undefined : { ...top, dirs: merged };
}
