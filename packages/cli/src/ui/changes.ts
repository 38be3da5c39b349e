import { formatBytes, printableName } from '@coppice/console';
import type { Change, Diff } from '@coppice/protocol';

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

/** `A /path (12 B)`; D is deleted, M modified, P permissions. */
export const changeLine = (change: Change): string =>
  `${letters[change.change]} ${printableName(change.path)}${sizes(change)}`;

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
