import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly name?: string;
  readonly note?: string;
}

export const define: DefineCommand = (program, cli) => {
  verb(program, 'keep', 'Keep an automatic snapshot, or change the name or note of a snapshot')
    .argument('<snapshot>', 'id, or sandbox:snapshot')
    .option('--name <name>', 'another name')
    .option('--note <text>', 'another note')
    .addHelpText('after', examples('coppice keep dev:before-restore-k3v9ab --name good'))
    .action(async (ref: string, { name, note }: Options) => {
      const { signal } = cli;
      const snapshot = await cli.coppice.snapshots.keep(ref, { name, note, signal });
      cli.out.result(snapshot, () => `${snapshot.name}  ${snapshot.id}`);
    });
};
