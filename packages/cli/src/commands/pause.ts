import { type DefineCommand, verb } from '../verb.ts';

export const define: DefineCommand = (program, cli) => {
  verb(program, 'pause', 'Pause a sandbox: its memory goes to disk and its processes end')
    .argument('<sandbox...>', 'names or ids')
    .option('--disk-only', 'keep the files and let the memory go')
    .action(async (refs: string[], { diskOnly }: { readonly diskOnly?: boolean }) => {
      const keep = diskOnly ? 'disk' : 'memory';
      const sandboxes = await cli.out.during('pausing', () =>
        Promise.all(refs.map((ref) => cli.coppice.sandboxes.at(ref).pause({ keep, signal: cli.signal }))),
      );
      cli.out.result(
        sandboxes.map(({ info }) => info),
        () => sandboxes.map(({ name }) => `paused ${name}`).join('\n'),
      );
    });
};
