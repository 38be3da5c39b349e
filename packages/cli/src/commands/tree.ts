import { drawLineage } from '../ui/lineage.ts';
import { type DefineCommand, verb } from '../verb.ts';

export const define: DefineCommand = (program, cli) => {
  verb(
    program,
    'tree',
    'Draw the tree of sandboxes and snapshots, with states, sizes and checkpoints',
  ).action(async () => {
    const nodes = await cli.coppice.lineage({ signal: cli.signal });
    cli.out.result(nodes, () => {
      const lines = drawLineage(nodes, (style, text) => cli.out.paint(style, text));
      return lines.length === 0 ? 'Nothing has grown yet. Start with `coppice create`.' : lines.join('\n');
    });
  });
};
