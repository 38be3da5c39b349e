import { drawLineage } from '../ui/lineage.ts';
import { type DefineCommand, verb } from '../verb.ts';

export const define: DefineCommand = (program, cli) => {
  verb(program, 'tree', 'Draw the tree of sandboxes and snapshots, with states, sizes and checkpoints')
    .option('-a, --all', 'on a terminal also every snapshot that was taken automatically')
    .action(async ({ all }: { readonly all?: boolean }) => {
      const nodes = await cli.coppice.lineage({ signal: cli.signal });
      cli.out.result(nodes, () => {
        const lines = drawLineage(nodes, cli.out.paint, all || cli.out.columns === undefined);
        return lines.length === 0 ? 'Nothing has grown yet. Start with `coppice create`.' : lines.join('\n');
      });
    });
};
