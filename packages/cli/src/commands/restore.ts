import { type DefineCommand, examples, verb } from '../verb.ts';

export const define: DefineCommand = (program, cli) => {
  verb(program, 'restore', 'Restore a sandbox to a snapshot; the state before it is kept for undo')
    .argument('<sandbox>', 'name or id')
    .argument('<snapshot>', 'name or id')
    .option('--discard', 'keep nothing of what is there now: this cannot be undone')
    .addHelpText('after', examples('coppice restore dev baseline'))
    .action(async (ref: string, snapshot: string, { discard = false }: { readonly discard?: boolean }) => {
      const restored = await cli.out.during('restoring', () =>
        cli.coppice.sandboxes.at(ref).restore(snapshot, { discard, signal: cli.signal }),
      );
      const memory = restored.with_memory ? ', memory included' : '';
      const { undo_snapshot_id: undoId } = restored;
      const undo = undoId === null ? '' : `\nundo: coppice restore ${ref} ${undoId}`;
      cli.out.result(
        restored,
        () => `restored ${ref} to ${snapshot}${memory}; it is ${restored.state}${undo}`,
      );
    });
};
