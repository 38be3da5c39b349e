import { formatBytes, plural, printable } from '@coppice/console';
import type { LineageNode } from '@coppice/protocol';
import type { Style } from './output.ts';
import { stateStyles } from './state.ts';

type Paint = (style: Style, text: string) => string;

const signs = { image: '◆', sandbox: '●', snapshot: '○' } as const;

const memoryLabel = ({ memory_bytes: bytes, memory_used_bytes: ownBytes }: LineageNode): string => {
  const own = ownBytes === null ? '' : ` (${formatBytes(ownBytes)} own)`;
  return bytes === null ? '+memory' : `+memory ${formatBytes(bytes)}${own}`;
};

const label = (node: LineageNode, paint: Paint, nameOf: (id: string) => string): string => {
  const size = node.referenced_bytes === null ? '' : `  ${formatBytes(node.referenced_bytes)}`;
  const own =
    node.used_bytes === null || node.kind === 'image' ? '' : ` (${formatBytes(node.used_bytes)} own)`;
  const memory = node.has_memory ? `  ${paint('cyan', memoryLabel(node))}` : '';
  const state = node.state === null ? '' : `  ${paint(stateStyles[node.state] ?? 'dim', node.state)}`;
  const restored =
    node.restored === null ? '' : `  ${paint('dim', `restored to ${printable(nameOf(node.restored.to))}`)}`;
  const kind =
    node.kind === 'sandbox'
      ? ''
      : `  ${paint('dim', node.automatic ? `${node.kind}, automatic` : node.kind)}`;
  return `${signs[node.kind]} ${paint('bold', printable(node.name))}${kind}${state}${size}${own}${memory}${restored}`;
};

/** The lines of the tree: what grew from what, oldest first. */
export const drawLineage = (nodes: readonly LineageNode[], paint: Paint, all = true): string[] => {
  const known = new Map(nodes.map(({ id, name }) => [id, name]));
  const nameOf = (id: string): string => known.get(id) ?? id;
  const children = Map.groupBy(
    [...nodes].sort((a, b) => (a.created_at < b.created_at ? -1 : a.created_at > b.created_at ? 1 : 0)),
    ({ parent }) => (parent !== null && known.has(parent) ? parent : null),
  );
  /** Undo snapshots that nothing grew from only fill the screen. */
  const foldedOf = (grown: readonly LineageNode[]): { grown: readonly LineageNode[]; folded: number } => {
    const shown = all ? grown : grown.filter((node) => !node.automatic || children.has(node.id));
    return { grown: shown, folded: grown.length - shown.length };
  };
  const lines: string[] = [];
  const draw = (node: LineageNode, lead: string, branch: string, below: string): void => {
    lines.push(lead + branch + label(node, paint, nameOf));
    const { grown, folded } = foldedOf(children.get(node.id) ?? []);
    for (const [index, child] of grown.entries()) {
      const last = index === grown.length - 1 && folded === 0;
      draw(child, lead + below, last ? '└─ ' : '├─ ', last ? '   ' : '│  ');
    }
    if (folded > 0)
      lines.push(`${lead}${below}└─ ${paint('dim', `… ${plural(folded, 'automatic snapshot')}`)}`);
  };
  for (const root of children.get(null) ?? []) draw(root, '', '', '');
  return lines;
};
