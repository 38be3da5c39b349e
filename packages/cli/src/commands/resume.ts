import { type DefineCommand, verb } from '../verb.ts';

export const define: DefineCommand = (program, cli) => {
  verb(program, 'resume', 'Resume a paused sandbox')
    .argument('<sandbox...>', 'names or ids')
    .action(async (refs: string[]) => {
      const sandboxes = await cli.out.during('resuming', () =>
        Promise.all(refs.map((ref) => cli.coppice.sandboxes.at(ref).resume({ signal: cli.signal }))),
      );
      cli.out.result(
        sandboxes.map(({ info }) => info),
        () => sandboxes.map(({ name }) => `resumed ${name}`).join('\n'),
      );
    });
};
