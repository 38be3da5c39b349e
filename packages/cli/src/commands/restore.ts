import { type DefineCommand, examples, verb } from '../verb.ts';

export const define: DefineCommand = (program, cli) => {
  verb(program, 'restore', 'Make a sandbox what a snapshot holds; every snapshot survives it')
    .argument('<sandbox>', 'name or id')
    .argument('<snapshot>', 'name or id')
    .addHelpText('after', examples('coppice restore dev baseline'))
    .action(async (ref: string, snapshot: string) => {
      const restored = await cli.out.during('restoring', () =>
        cli.coppice.sandboxes.at(ref).restore(snapshot, { signal: cli.signal }),
      );
      const memory = restored.with_memory ? ', memory included' : '';
      cli.out.result(restored, () => `restored ${ref} to ${snapshot}${memory}; it is ${restored.state}`);
    });
};
