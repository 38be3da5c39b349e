import { formatBytes, printableName } from '@coppice/console';
import type { Change, Diff } from '@coppice/protocol';
import type { Look } from './table.ts';

const letters = { added: 'A', removed: 'D', modified: 'M', mode: 'P' } as const;

const sizes = ({
  change,
  kind,
  size_before: before,
  size_after: after,
  mode_before,
  mode_after,
}: Change): string => {
  if (change === 'mode') return ` (mode ${mode_before} -> ${mode_after})`;
  if (kind === 'directory') return '/';
  if (kind !== 'file') return ` (${kind})`;
  if (change === 'added') return ` (${formatBytes(after ?? 0)})`;
  if (change === 'removed') return ` (was ${formatBytes(before ?? 0)})`;
  return ` (${formatBytes(before ?? 0)} -> ${formatBytes(after ?? 0)})`;
};

const styles = { added: 'green', removed: 'red', modified: 'yellow', mode: 'cyan' } as const;

/** `A /path (12 B)`; D is deleted, M modified, P permissions. */
export const changeLine = (change: Change, { paint }: Pick<Look, 'paint'>): string =>
  `${paint(styles[change.change], letters[change.change])} ${printableName(change.path)}${sizes(change)}`;

/** More than this on a terminal is folded by directory. */
const mostListed = 100;
const mostFolders = 40;

/** One line for each, or on a terminal, where there are very many, one for each directory. */
export const changeLines = (changes: readonly Change[], look: Look, all = false): string[] => {
  if (all || look.columns === undefined || changes.length <= mostListed)
    return changes.map((change) => changeLine(change, look));
  return [
    ...folders(changes).map(([folder, inside]) =>
      inside.length === 1
        ? changeLine(inside[0]!, look)
        : `${look.paint('dim', '…')} ${printableName(folder)}/ (${changeSummary(counted(inside))})`,
    ),
    'Folded by directory; --all lists every path, a path as an argument what is below it.',
  ];
};

/** As deep as still makes few of them. */
const folders = (changes: readonly Change[]): [string, Change[]][] => {
  const at = (depth: number) =>
    Map.groupBy(changes, ({ path }) => {
      const parts = path.split('/');
      return parts.slice(0, Math.min(depth + 1, parts.length - 1)).join('/');
    });
  let found = at(1);
  for (let depth = 2; depth <= 16; depth++) {
    const deeper = at(depth);
    if (deeper.size > mostFolders) break;
    found = deeper;
  }
  return [...found];
};

const counted = (changes: readonly Change[]): Diff['summary'] => ({
  added: changes.filter(({ change }) => change === 'added').length,
  removed: changes.filter(({ change }) => change === 'removed').length,
  modified: changes.filter(({ change }) => change === 'modified').length,
  mode: changes.filter(({ change }) => change === 'mode').length,
});

const patchStyles = { '+': 'green', '-': 'red', '@': 'cyan' } as const;

/** A unified diff in the colours that people know. */
export const paintedPatch = (text: string, { paint }: Look): string =>
  text
    .split('\n')
    .map((line) => {
      const style = /^(?:\+\+\+|---|diff )/.test(line)
        ? 'bold'
        : patchStyles[line[0] as keyof typeof patchStyles];
      return style === undefined ? line : paint(style, line);
    })
    .join('\n');

export const changeSummary = ({ added, removed, modified, mode }: Diff['summary']): string => {
  const parts = [
    [added, 'added'],
    [removed, 'removed'],
    [modified, 'modified'],
    [mode, 'with another mode'],
  ] as const;
  const said = parts.filter(([count]) => count > 0).map(([count, word]) => `${count} ${word}`);
  return said.length === 0 ? 'no difference' : said.join(', ');
};
