/**
 * A root filesystem as a sandbox sees it: the layers of an image, and above them what was changed, in the form that overlayfs writes
 * (whiteouts are character devices 0/0; an opaque directory carries user.overlay.opaque or trusted.overlay.opaque).
 */
export interface LayeredTree {
  /** The layers of the image, topmost first. */
  readonly imageDirs: readonly string[];
  readonly upperDir: string;
}

export interface TreeChange {
  /** Absolute, as seen inside the sandbox. */
  readonly path: string;
  readonly change: 'added' | 'removed' | 'modified' | 'mode';
  readonly kind: 'file' | 'directory' | 'symlink' | 'fifo' | 'socket' | 'device';
  readonly sizeBefore: number | null;
  readonly sizeAfter: number | null;
  readonly modeBefore: number | null;
  readonly modeAfter: number | null;
}

export interface MergeConflict {
  readonly path: string;
  readonly ours: 'added' | 'removed' | 'modified' | 'mode';
  readonly theirs: 'added' | 'removed' | 'modified' | 'mode';
}

export interface MergePlan {
  /** Changes of `theirs` since `base` that `ours` does not have yet and that clash with nothing. */
  readonly changes: readonly TreeChange[];
  readonly conflicts: readonly MergeConflict[];
  /** Sockets, FIFOs and devices of `theirs`, which are not carried over. */
  readonly skipped: readonly string[];
  /** What the content of the changes takes on a disk, and that of the conflicts where theirs is preferred. */
  readonly changedBytes: number;
  readonly conflictBytes: number;
}
