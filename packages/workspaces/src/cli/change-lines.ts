import type { EntryChange } from '../index.ts';

const letters = { added: 'A', removed: 'D', modified: 'M', metadata: 'm' } as const;

const octal = (mode: number | null): string => (mode ?? 0).toString(8).padStart(4, '0');

const special: Readonly<Record<string, string>> = { '\\': '\\\\', '\n': '\\n', '\t': '\\t' };

/** One line for each path, whatever its name: control characters and bytes that are not UTF-8 show as \xNN. */
export const pathText = (path: string): string =>
  path.replace(
    /[\\\x00-\x1f\x7f-\x9f\udc80-\udcff]/g,
    (found) => special[found] ?? `\\x${(found.charCodeAt(0) & 0xff).toString(16).padStart(2, '0')}`,
  );

export const changeLine = (change: EntryChange): string => {
  const slash = change.type === 'd' ? '/' : '';
  const mode =
    change.change === 'metadata' && change.modeBefore !== change.modeAfter
      ? `  (mode ${octal(change.modeBefore)} to ${octal(change.modeAfter)})`
      : '';
  return `${letters[change.change]} ${pathText(change.path)}${slash}${mode}`;
};

export const countChanges = (changes: readonly EntryChange[], kind: EntryChange['change']): number =>
  changes.filter(({ change }) => change === kind).length;
