import { type DefineCommand, verb } from '../verb.ts';

export const define: DefineCommand = (program, cli) => {
  verb(program, 'start', 'Start a stopped sandbox')
    .argument('<sandbox...>', 'names or ids')
    .action(async (refs: string[]) => {
      const sandboxes = await cli.out.during('starting', () =>
        Promise.all(refs.map((ref) => cli.coppice.sandboxes.at(ref).start({ signal: cli.signal }))),
      );
      cli.out.result(
        sandboxes.map(({ info }) => info),
        () => sandboxes.map(({ name }) => `started ${name}`).join('\n'),
      );
    });
};
