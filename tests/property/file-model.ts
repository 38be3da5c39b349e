/** What a person inside sees: path to text. Plain and slow on purpose: it is what the real thing is held against. */
export type Files = ReadonlyMap<string, string>;

export interface ModelMerge {
  readonly merged: Files;
  /** Both sides changed them, each in its own way. */
  readonly conflicts: readonly string[];
  /** What the other side changed that this one does not have yet. */
  readonly changes: readonly string[];
}

/** Three-way, path by path. */
export const mergeFiles = (
  base: Files,
  ours: Files,
  theirs: Files,
  prefer?: 'ours' | 'theirs',
): ModelMerge => {
  const merged = new Map(ours);
  const conflicts: string[] = [];
  const changes: string[] = [];
  for (const path of [...new Set([...base.keys(), ...ours.keys(), ...theirs.keys()])].sort()) {
    const [was, our, their] = [base.get(path), ours.get(path), theirs.get(path)];
    if (their === was || their === our) continue;
    const isConflict = our !== was;
    (isConflict ? conflicts : changes).push(path);
    if (isConflict && prefer !== 'theirs') continue;
    if (their === undefined) merged.delete(path);
    else merged.set(path, their);
  }
  return { merged, conflicts, changes };
};

export const withFile = (files: Files, path: string, text: string): Files => new Map(files).set(path, text);

export const withoutFile = (files: Files, path: string): Files => {
  const rest = new Map(files);
  rest.delete(path);
  return rest;
};

export const sorted = (files: Files): [string, string][] =>
  [...files].sort(([one], [other]) => (one < other ? -1 : 1));
